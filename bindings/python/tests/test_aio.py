"""test_aio.py - the asyncio client: cancelled waits, lost leases, a blocked loop."""
import asyncio
import gc
import sys
import time
import unittest

import holdfast
import support
from holdfast import aio
from support import GROWTH, Case, on_every_engine, pages


def in_loop(test):
    """Runs a coroutine as a test, with a client of its own."""
    def run(self):
        async def body():
            async with aio.Client(self.url) as client:
                await asyncio.wait_for(test(self, client), 30)
        asyncio.run(body())

    run.__doc__ = test.__doc__
    return run


@on_every_engine
class Asyncio(Case):
    @in_loop
    async def test_with(self, client):
        """async with holds the lock and releases it"""
        async with client.lock("a", wait=5) as lease:
            self.assertTrue(lease.held)
            self.assertIsNone(await client.try_acquire("a"))
        self.assertFalse(lease.held)
        async with client.lock("a", wait=0):
            pass

    @in_loop
    async def test_waits(self, client):
        """a waiter gets it when it is released"""
        lease = await client.acquire("w")
        waiter = asyncio.ensure_future(client.acquire("w"))
        await asyncio.sleep(0.1)
        self.assertFalse(waiter.done())
        await client.release(lease)
        await client.release(await waiter)

    @in_loop
    async def test_others_run(self, client):
        """a task that tries again and again lets others run"""
        held = await client.acquire("o")
        asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(client.release(held)))
        lease = None
        while lease is None:
            lease = await client.try_acquire("o")
        await client.release(lease)

    @in_loop
    async def test_others_run_beside_pairs(self, client):
        """a task that acquires and releases without a pause lets others run"""
        seen, end = [], time.monotonic() + 0.2

        async def other():
            while time.monotonic() < end:
                seen.append(time.monotonic())
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        while time.monotonic() < end:
            await client.release(await client.acquire("p"))
        await task
        self.assertGreater(len(seen), 20)

    @in_loop
    async def test_cancel(self, client):
        """a cancelled task leaves the queue"""
        lease = await client.acquire("c")
        waiter = asyncio.ensure_future(client.acquire("c"))
        while not self.waiters("c"):
            await asyncio.sleep(0.01)
        waiter.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiter
        self.assertEqual(self.waiters("c"), [])
        await client.release(lease)

    @in_loop
    async def test_cancel_late(self, client):
        """a grant that came before the cancel is released"""
        for _ in range(20):
            lease = await client.acquire("late")
            waiter = asyncio.ensure_future(client.acquire("late"))
            await asyncio.sleep(0.005)
            await client.release(lease)
            waiter.cancel()
            try:
                await client.release(await waiter)
            except asyncio.CancelledError:
                pass
        await client.release(await client.acquire("late", wait=5))

    @in_loop
    async def test_busy(self, client):
        """a wait that is over is Busy"""
        lease = await client.acquire("b")
        with self.assertRaises(holdfast.Busy) as caught:
            await client.acquire("b", wait=0.05)
        self.assertEqual(caught.exception.code, "TIMEOUT")
        self.assertEqual(caught.exception.holder["token"], lease.token)
        with self.assertRaises(holdfast.Busy) as caught:
            await client.acquire("b", wait=0)
        self.assertEqual(caught.exception.holder["token"], lease.token)
        await client.release(lease)

    @in_loop
    async def test_closed_inside(self, client):
        """a block whose client was closed is Lost at its end"""
        with self.assertRaises(holdfast.Lost):
            async with client.lock("closed"):
                await client.close()

    @in_loop
    async def test_longest_name(self, client):
        """the refusal of the longest name, of characters of two bytes, reaches its task"""
        name = "\u00e9" * 256
        lease = await client.acquire(name)
        with self.assertRaises(holdfast.Busy) as caught:
            await client.acquire(name, wait=0.05)
        self.assertIn(name, str(caught.exception))
        await client.release(lease)

    @in_loop
    async def test_lost(self, client):
        """a lost lease cancels the task inside the block, which raises Lost"""
        with self.assertLogs("holdfast", "WARNING"), self.assertRaises(holdfast.Lost):
            async with client.lock("lost", ttl=0.3, renew=False):
                await asyncio.sleep(20)
        await asyncio.sleep(0)  # the task is not being cancelled any more

    @in_loop
    async def test_several(self, client):
        """several names, all or none"""
        async with client.lock("y", "x") as leases:
            self.assertEqual([lease.name for lease in leases], ["y", "x"])
            with self.assertRaises(holdfast.Busy):
                await client.acquire_all(["w", "x"], wait=0.05)
            await client.release(await client.acquire("w", wait=0))

    @in_loop
    async def test_blocked_loop(self, client):
        """a loop that is blocked for three ttls keeps its lock"""
        async with client.lock("blocked", ttl=0.5) as lease:
            end, intruders = time.monotonic() + 1.5, 0
            while time.monotonic() < end:
                other = self.client.try_acquire("blocked")
                intruders += other is not None
            self.assertEqual(intruders, 0)
            self.assertTrue(lease.held)

    @in_loop
    async def test_crowd(self, client):
        """fifty tasks take turns, one at a time"""
        inside, overlaps, turns = [], [], []

        async def work():
            async with client.lock("crowd"):
                overlaps.extend(inside)
                inside.append(1)
                await asyncio.sleep(0)
                turns.append(1)
                inside.pop()

        await asyncio.gather(*(work() for _ in range(50)))
        self.assertEqual((len(turns), overlaps), (50, []))

    @in_loop
    async def test_extend(self, client):
        """extend makes the time longer"""
        async with client.lock("extended", ttl=2, renew=False) as lease:
            await client.extend(lease, 20)
            self.assertGreater(lease.remaining, 15)
            await client.extend(lease)
            self.assertGreater(lease.remaining, 15)

    @in_loop
    async def test_convert(self, client):
        """a reader becomes the writer with a new token, and a reader again"""
        lease = await client.acquire("rw", kind="read")
        other = await client.acquire("rw", kind="read")
        token = lease.token
        with self.assertRaises(holdfast.Busy):
            await client.upgrade(lease)
        self.assertTrue(lease.held)
        await client.release(other)
        await client.upgrade(lease)
        self.assertGreater(lease.token, token)
        self.assertIsNone(await client.try_acquire("rw", kind="read"))
        await client.downgrade(lease)
        await client.release(await client.acquire("rw", kind="read", wait=5))
        await client.release(lease)
        self.assertGreater(lease.token, token)

    @in_loop
    async def test_convert_cancelled(self, client):
        """a conversion whose task is cancelled goes on, and its token is known"""
        if not self.url.startswith("redis:"):
            return
        lease = await client.acquire("rw/cancelled", kind="read")
        token = lease.token
        with support.paused(self.url, 0.2):
            task = asyncio.ensure_future(client.upgrade(lease))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        while lease.token == token:
            await asyncio.sleep(0.01)
        self.assertGreater(lease.token, token)
        await client.release(lease)

    @in_loop
    async def test_cancel_at_exit(self, client):
        """a task that is cancelled while it releases has released, and is cancelled"""
        inside, leave = asyncio.Event(), asyncio.Event()

        async def work():
            async with client.lock("exit"):
                inside.set()
                await leave.wait()

        task = asyncio.ensure_future(work())
        await inside.wait()
        leave.set()
        await asyncio.sleep(0)
        was_releasing = not task.done()
        task.cancel()
        if was_releasing:
            with self.assertRaises(asyncio.CancelledError):
                await task
        await client.release(await client.acquire("exit", wait=0))

    @unittest.skipIf(sys.version_info < (3, 11), "tasks do not count their cancellations before 3.11")
    @in_loop
    async def test_lost_and_cancelled(self, client):
        """a task that is cancelled from outside, too, is cancelled"""
        async def work():
            async with client.lock("both", ttl=0.3, renew=False):
                try:
                    await asyncio.sleep(20)
                finally:
                    lost.set()
                    await asyncio.shield(asyncio.sleep(0.05))

        lost = asyncio.Event()
        task = asyncio.ensure_future(work())
        with self.assertLogs("holdfast", "WARNING"):
            await lost.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

    @in_loop
    async def test_no_growth(self, client):
        """ten thousand cycles leave nothing behind"""
        async def cycle(name):
            for _ in range(10):
                await client.release(await client.acquire(name))

        async def cycles(count):
            for _ in range(count // 500):
                await asyncio.gather(*(cycle(f"cycle/{i}") for i in range(50)))
            gc.collect()
            return pages()

        asyncio.get_running_loop().set_debug(False)
        before = await cycles(2000)
        self.assertLess(await cycles(10000) - before, GROWTH, "pages")
        self.assertEqual((client._waits, client._blocks), ({}, {}))

    @in_loop
    async def test_silent_server(self, client):
        """a server that does not answer blocks neither the loop nor its executor"""
        if not self.url.startswith("redis:"):
            return
        leases = [await client.acquire(f"silent/{i}") for i in range(40)]
        readers = [await client.acquire(f"silent/{i}/r", kind="read") for i in range(2)]
        await client.upgrade(readers[1])
        with support.paused(self.url, 0.4):
            releases = [asyncio.ensure_future(client.release(lease)) for lease in leases]
            releases += [asyncio.ensure_future(client.upgrade(readers[0])),
                         asyncio.ensure_future(client.downgrade(readers[1]))]
            longest = turns = 0
            while not any(release.done() for release in releases):
                begin = time.monotonic()
                await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.005)
                longest, turns = max(longest, time.monotonic() - begin), turns + 1
        await asyncio.gather(*releases)
        self.assertGreater(turns, 5)
        self.assertLess(longest, 0.3)

    def test_close_ends_waits(self):
        """close() ends waits with Closed"""
        async def body():
            client = aio.Client(self.url)
            lease = await client.acquire("z")
            waiter = asyncio.ensure_future(client.acquire("z"))
            await asyncio.sleep(0.1)
            await client.close()
            with self.assertRaises(holdfast.Closed):
                await waiter
            self.assertFalse(lease.held)

        asyncio.run(body())

    def test_other_loop(self):
        """a client that is used in a second loop works once the first has ended"""
        client = aio.Client(self.url)

        async def turn():
            async with client.lock("loops", wait=5):
                pass

        asyncio.run(turn())
        asyncio.run(turn())
        asyncio.run(client.close())
