"""test_bars.py - what a pair of acquire and release costs beside redis-py, in one run: short rounds in
turns, so that a change of load meets both. The figures are printed; the bars are asserted."""
import asyncio
import contextlib
import os
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import holdfast  # noqa: E402
import holdfast.redis  # noqa: E402
import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from holdfast import aio  # noqa: E402
from support import URLS  # noqa: E402

SERVER = next(url for url in URLS if url.startswith("redis:"))
LOCAL = next(url for url in URLS if url.startswith("local:"))
ROUNDS = 15


def figure(text):
    print("# " + text, flush=True)


def in_turns(**kinds):
    """Microseconds a pair of each kind, for every round: {name: [...]}."""
    seen = {name: [] for name in kinds}
    for round_number in range(ROUNDS + 1):
        for name, pairs in kinds.items():
            count, seconds = pairs()
            if round_number:  # the first one warms up
                seen[name].append(seconds / count * 1e6)
    for name, costs in seen.items():
        figure(f"{name}: {min(costs):.1f} us best, {statistics.median(costs):.1f} us median")
    return seen


def ratio(seen, ours, theirs):
    """The median over the rounds of ours to theirs."""
    value = statistics.median(a / b for a, b in zip(seen[ours], seen[theirs]))
    figure(f"{ours} to {theirs}: {value:.2f} of the time")
    return value


def timed(pairs, count):
    begin = time.perf_counter()
    pairs(count)
    return count, time.perf_counter() - begin


@contextlib.contextmanager
def placed(client, server):
    """Client and server keep to these processors. Left alone they share one or not, as it happens,
    for seconds at a time; a round trip between two processors takes 20 us longer, so two kinds that
    were placed differently cannot be compared."""
    with contextlib.closing(redis.Redis.from_url(SERVER)) as asked:
        server_pid = asked.info("server")["process_id"]
    before = {pid: os.sched_getaffinity(pid) for pid in (0, server_pid)}
    try:
        os.sched_setaffinity(0, {client})
        os.sched_setaffinity(server_pid, {server})
        yield
    finally:
        for pid, processors in before.items():
            os.sched_setaffinity(pid, processors)


def places():
    """The placements: on one processor, and on two."""
    first, *others = sorted(os.sched_getaffinity(0))
    return [("on one processor", first, first)] + [("on two", first, other) for other in others[:1]]


class Bars(unittest.TestCase):
    def test_blocking(self):
        """blocking: at most 0.45 of redis-py's time"""
        server, client = redis.Redis.from_url(SERVER), holdfast.Client(SERVER)

        def theirs(count, **options):
            for _ in range(count):
                lock = server.lock("theirs", timeout=10, **options)
                lock.acquire()
                lock.release()

        def ours(count):
            for _ in range(count):
                client.acquire("ours").release()

        seen = in_turns(holdfast=lambda: timed(ours, 300), redis_py=lambda: timed(theirs, 300),
                        holdfast_redis_Lock=lambda: timed(
                            lambda count: theirs(count, lock_class=holdfast.redis.Lock), 300))
        client.close()
        server.close()
        ratio(seen, "holdfast_redis_Lock", "redis_py")
        self.assertLessEqual(ratio(seen, "holdfast", "redis_py"), 0.45)

    def asyncio_seen(self, at_once):
        each = 200 // at_once

        async def measure(make, pair):
            client = make()

            async def some(name):
                for _ in range(each):
                    await pair(client, name)

            async def all_of_them():
                begin = time.perf_counter()
                await asyncio.gather(*(some(f"bar/{i}") for i in range(at_once)))
                return each * at_once, time.perf_counter() - begin

            await all_of_them()
            result = await all_of_them()
            await client.close()
            return result

        async def ours(client, name):
            await client.release(await client.acquire(name))

        async def theirs(client, name):
            lock = client.lock("theirs/" + name, timeout=10)
            await lock.acquire()
            await lock.release()

        return in_turns(
            holdfast_aio=lambda: asyncio.run(measure(lambda: aio.Client(SERVER), ours)),
            redis_asyncio=lambda: asyncio.run(measure(lambda: redis.asyncio.Redis.from_url(SERVER), theirs)))

    def compare_asyncio(self, at_once):
        for place, client, server in places():
            figure(f"{at_once} at a time, client and server {place}:")
            with placed(client, server):
                seen = self.asyncio_seen(at_once)
            self.assertLessEqual(ratio(seen, "holdfast_aio", "redis_asyncio"), 0.6, place)

    def test_asyncio(self):
        """asyncio, one at a time: at most 0.6 of redis.asyncio's time"""
        self.compare_asyncio(1)

    def test_asyncio_many(self):
        """asyncio, 50 in flight: at most 0.6 of redis.asyncio's time"""
        self.compare_asyncio(50)

    def test_local(self):
        """local: at most 2 microseconds a pair"""
        client = holdfast.Client(LOCAL)

        def ours(count):
            for _ in range(count):
                client.acquire("ours").release()

        seen = in_turns(local=lambda: timed(ours, 20000))
        client.close()
        self.assertLessEqual(min(seen["local"]), 2)

    def test_fair(self):
        """ten threads that want one lock: Jain's index is 0.999 or more"""
        client, turns, stop = holdfast.Client(SERVER), [0] * 10, time.monotonic() + 5

        def work(i):
            while time.monotonic() < stop:
                with client.lock("wanted"):
                    turns[i] += 1
                    time.sleep(0.001)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        jain = sum(turns) ** 2 / (len(turns) * sum(n * n for n in turns))
        figure(f"{sum(turns)} turns in 5 s, from {min(turns)} to {max(turns)} a thread, Jain's index {jain:.4f}")
        self.assertGreaterEqual(jain, 0.999)
