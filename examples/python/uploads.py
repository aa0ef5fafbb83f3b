"""uploads.py - an asyncio worker with a semaphore: two processes with ten uploads each, and never more
than three at once. An upload that outlives its permit is cancelled.

    uploads.py [URL]
"""
import asyncio
import contextlib
import sys
import time

import holdfast
from holdfast import aio

LIMIT = 3


async def upload(client, name, seconds, **options):
    """Prints when it began and ended, by the clock that all processes of the machine share."""
    async with client.lock("uploads", capacity=LIMIT, wait=30, **options):
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        print(name, begin, time.monotonic(), flush=True)


async def worker(url, name):
    async with aio.Client(url) as client:
        await asyncio.gather(*(upload(client, f"{name}/{i}", 0.05) for i in range(10)))


async def most_at_once(url):
    """Two workers as processes of their own; how many uploads ran at the same time."""
    workers = [await asyncio.create_subprocess_exec(sys.executable, __file__, url, name, stdout=asyncio.subprocess.PIPE)
               for name in ("left", "right")]
    lines = b"".join([(await process.communicate())[0] for process in workers]).decode().split("\n")
    changes = []
    for name, begin, end in (line.split() for line in lines if line):
        changes += [(float(begin), 1), (float(end), -1)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return len(changes) // 2, most


async def too_slow(url):
    """The permit is not renewed and ends after half a second; the upload would take ten."""
    async with aio.Client(url) as client:
        with contextlib.suppress(holdfast.Lost):
            await upload(client, "slow", 10, ttl=0.5, renew=False)
            return False
        return True


async def main(url):
    uploads, most = await most_at_once(url)
    print(f"{uploads} uploads, at most {most} at once")
    begin = time.monotonic()
    cancelled = await too_slow(url)
    print(f"the slow upload was cancelled after {time.monotonic() - begin:.1f} s")
    assert (uploads, most, cancelled) == (20, LIMIT, True)
    assert time.monotonic() - begin < 5
    print("proved: 20 uploads of two processes, never more than 3 at once, and the one that outlived its permit was cancelled")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(worker(*sys.argv[1:]))
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "local:"))
