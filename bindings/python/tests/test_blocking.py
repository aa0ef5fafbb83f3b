"""test_blocking.py - the blocking client: with, waits, kinds, losses, closing."""
import gc
import os
import pickle
import random
import signal
import threading
import time
import unittest
import warnings
from datetime import timedelta
from fractions import Fraction

import holdfast
from support import GROWTH, Case, on_every_engine, pages


@on_every_engine
class Blocking(Case):
    def test_with(self):
        """a with block holds the lock and releases it"""
        with self.client.lock("a", wait=5) as lease:
            self.assertTrue(lease.held)
            self.assertEqual(lease.name, "a")
            self.assertGreater(lease.remaining, 1)
            self.assertIsNone(self.client.try_acquire("a"))
        self.assertFalse(lease.held)
        self.assertEqual(lease.remaining, 0)

    def test_tokens(self):
        """tokens rise with every grant"""
        tokens = []
        for _ in range(3):
            with self.client.lock("tokens") as lease:
                tokens.append(lease.token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_decorator(self):
        """a decorated function runs under the lock, again and again"""
        @self.client.lock("decorated")
        def work():
            return self.client.try_acquire("decorated")

        self.assertIsNone(work())
        self.assertIsNone(work())

    def test_decorated_late(self):
        """what runs after its call has returned cannot be decorated"""
        async def coroutine():
            pass

        def generator():
            yield

        async def both():
            yield

        for function in coroutine, generator, both:
            with self.assertRaises(TypeError):
                self.client.lock("late")(function)

    def test_busy(self):
        """a busy lock is Busy, at once or after the wait"""
        held = self.client.acquire("busy", ttl=20, label="the nightly job")
        with self.assertRaises(holdfast.Busy) as at_once:
            self.client.acquire("busy", wait=0)
        self.assertEqual(at_once.exception.code, "BUSY")
        begin = time.monotonic()
        with self.assertRaises(holdfast.Busy) as later:
            self.client.acquire("busy", wait=timedelta(milliseconds=100))
        self.assertEqual(later.exception.code, "TIMEOUT")
        self.assertGreaterEqual(time.monotonic() - begin, 0.09)
        self.assertEqual(self.waiters("busy"), [])
        for error in (at_once.exception, later.exception):
            self.assertEqual((error.holder["pid"], error.holder["label"], error.holder["token"]),
                             (os.getpid(), "the nightly job", held.token))
            self.assertTrue(10 < error.retry_after <= 20, error.retry_after)
        held.release()

    def test_waits_in_order(self):
        """waiters are served in the order of their arrival"""
        served, threads = [], []
        first = self.client.acquire("order")

        def turn(i):
            with self.client.lock("order"):
                served.append(i)

        for i in range(5):
            threads.append(threading.Thread(target=turn, args=(i,)))
            threads[-1].start()
            self.eventually(lambda: len(self.waiters("order")) == i + 1)
        first.release()
        for thread in threads:
            thread.join()
        self.assertEqual(served, list(range(5)))

    def test_threads(self):
        """eight threads take turns, one at a time"""
        inside, overlaps, turns = [], [], []

        def work():
            for _ in range(25):
                with self.client.lock("threads"):
                    overlaps.extend(inside)
                    inside.append(1)
                    turns.append(1)
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(turns), overlaps), (200, []))

    def test_kinds(self):
        """semaphores and read-write locks"""
        one, two = (self.client.acquire("pool", capacity=2) for _ in range(2))
        self.assertIsNone(self.client.try_acquire("pool", capacity=2))
        one.release()
        two.release()
        readers = [self.client.acquire("book", kind="read") for _ in range(2)]
        self.assertIsNone(self.client.try_acquire("book", kind="write"))
        readers.pop().release()
        token = readers[0].token
        readers[0].upgrade()
        self.assertGreater(readers[0].token, token)
        self.assertIsNone(self.client.try_acquire("book", kind="read"))
        readers[0].downgrade()
        self.client.acquire("book", kind="read", wait=0).release()
        readers[0].release()

    def test_owner(self):
        """the same owner enters again"""
        outer = self.client.acquire("nested", owner="me")
        self.client.acquire("nested", owner="me", wait=0).release()
        self.assertTrue(outer.held)
        outer.release()

    def test_several(self):
        """several names, all or none"""
        with self.client.lock("y", "x") as leases:
            self.assertEqual([lease.name for lease in leases], ["y", "x"])
            self.assertTrue(leases.held)
        held = self.client.acquire("x")
        with self.assertRaises(holdfast.Busy):
            self.client.acquire_all(["w", "x"], wait=0.05)
        self.client.acquire("w", wait=0).release()
        held.release()

    def test_several_one_lost(self):
        """a with block that lost one of its names releases the others, and is Lost"""
        with self.assertRaises(holdfast.Lost), self.assertLogs("holdfast", "WARNING"):
            with self.client.lock("one", "other") as leases:
                leases[0].release()
        self.client.acquire("other", wait=0).release()

    def test_exit_elsewhere(self):
        """a thread that has not entered a lock cannot leave it"""
        with self.client.lock("elsewhere") as lease:
            raised = []

            def leave():
                try:
                    lock.__exit__(None, None, None)
                except RuntimeError as error:
                    raised.append(error)

            lock = self.client.lock("elsewhere")
            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            self.assertTrue(raised)
            self.assertTrue(lease.held)

    def test_lost(self):
        """a lease that ends while the work runs is Lost at the end of the block"""
        with self.assertRaises(holdfast.Lost), self.assertLogs("holdfast", "WARNING"):
            with self.client.lock("lost", ttl=0.3, renew=False) as lease:
                time.sleep(0.5)
                with self.assertRaises(holdfast.Lost):
                    lease.check()

    def test_exception_first(self):
        """an exception of the work is not replaced by the loss"""
        with self.assertRaises(ZeroDivisionError), self.assertLogs("holdfast", "WARNING"):
            with self.client.lock("lost", ttl=0.3, renew=False):
                time.sleep(0.5)
                raise ZeroDivisionError

    def test_renewed(self):
        """a lease is renewed beyond its ttl"""
        with self.client.lock("renewed", ttl=0.5) as lease:
            time.sleep(1.2)
            self.assertTrue(lease.held)

    def test_dropped(self):
        """a lease that is dropped stays held, with a warning"""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            self.client.acquire("dropped")
            gc.collect()
        self.assertEqual([w.category for w in seen], [ResourceWarning])
        self.assertIsNone(self.client.try_acquire("dropped"))

    def test_client_dropped(self):
        """a lease keeps its client: the lock is not released under work that still runs"""
        lease = holdfast.Client(self.url).acquire("kept")
        gc.collect()
        self.assertTrue(lease.held)
        self.assertIsNone(self.client.try_acquire("kept"))
        lease.release()
        self.client.acquire("kept", wait=5).release()

    def test_handler_raises(self):
        """a signal's handler that raises between the grant and the block leaves nothing held"""
        class Stop(Exception):
            pass

        entering, stopped, end = False, 0, time.monotonic() + 1

        def handler(number, frame):
            if entering:
                raise Stop

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        client, other = holdfast.Client(self.url), holdfast.Client(self.url)
        while time.monotonic() < end:
            for names in ["g"], ["g", "h"]:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
                    entering = True
                    with client.lock(*names, wait=0):
                        entering = False
                except Stop:
                    stopped += 1
                    entering = False
                    self.assertEqual(other.list("g"), [])
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertGreater(stopped, 10)
        client.close()
        other.close()

    def test_release_twice(self):
        """a second release is Lost, and releases nothing"""
        lease = self.client.acquire("twice")
        lease.release()
        with self.assertRaises(holdfast.Lost):
            lease.release()

    def test_close_ends_waits(self):
        """close() releases what is held and ends waits with Closed"""
        other = holdfast.Client(self.url)
        self.addCleanup(other.close)
        held, outcome = other.acquire("closing"), []

        def wait():
            try:
                self.client.acquire("closing")
            except holdfast.Error as error:
                outcome.append(type(error))

        mine = self.client.acquire("mine")
        thread = threading.Thread(target=wait)
        thread.start()
        self.eventually(lambda: len([r for r in other.list("closing") if r["role"] == "waiter"]))
        self.client.close()
        thread.join(5)
        self.assertEqual(outcome, [holdfast.Closed])
        self.assertFalse(mine.held)
        other.acquire("mine", wait=1).release()
        with self.assertRaises(holdfast.Closed):
            self.client.acquire("closing")
        held.release()

    def test_close_in_a_hurry(self):
        """a wait that a close() without patience ended is Closed, too"""
        with holdfast.Client(self.url).lock("hurry"):
            outcome = []

            def wait():
                try:
                    self.client.acquire("hurry")
                except holdfast.Error as error:
                    outcome.append(type(error))

            thread = threading.Thread(target=wait)
            thread.start()
            self.eventually(lambda: self.waiters("hurry"))
            try:
                self.client.close(0)
            except holdfast.Error as error:
                self.assertEqual(error.code, "TIMEOUT")
            thread.join(5)
            self.assertEqual(outcome, [holdfast.Closed])

    def test_list(self):
        """list shows holders and waiters"""
        with self.client.lock("list/a", label="nightly"):
            rows = self.client.list("list/")
            self.assertEqual([(row["name"], row["role"], row["label"]) for row in rows],
                             [("list/a", "holder", "nightly")])

    def test_bad_values(self):
        """bad values are INVALID and name the value"""
        for options, text in [({"wait": -1}, "wait: -1"), ({"ttl": "x"}, "ttl: 'x'"),
                              ({"wait": True}, "wait: True"), ({"ttl": float("nan")}, "ttl: nan"),
                              ({"wait": Fraction(1, 10)}, "wait: Fraction(1, 10)"),
                              ({"capacity": -1}, "capacity: -1"),
                              ({"capacity": 2 ** 32}, "capacity: 4294967296"),
                              ({"capacity": 3, "units": 2 ** 32 + 1}, "units: 4294967297"),
                              ({"kind": "no"}, 'kind: "no"')]:
            with self.assertRaises(holdfast.Error) as caught:
                self.client.acquire("bad", **options)
            self.assertEqual(caught.exception.code, "INVALID")
            self.assertIn(text, str(caught.exception))
        with self.assertRaises(holdfast.Error):
            self.client.acquire("")
        with self.assertRaises(holdfast.Error):
            self.client.acquire_all([])
        for call in (lambda: self.client.acquire("bad", wiat=1), lambda: self.client.acquire(b"bad"),
                     lambda: self.client.acquire("bad", capacity="3"),
                     lambda: self.client.acquire_all("bad")):
            with self.assertRaises(TypeError):
                call()

    def test_pickle(self):
        """a client is pickled as its URL, a lease not at all"""
        again = pickle.loads(pickle.dumps(self.client))
        self.addCleanup(again.close)
        with self.client.lock("pickled") as lease:
            self.assertIsNone(again.try_acquire("pickled"))
            with self.assertRaises(TypeError):
                pickle.dumps(lease)

    def test_no_growth(self):
        """ten thousand cycles leave nothing behind"""
        def cycles(count):
            for _ in range(count):
                self.client.acquire("cycle").release()
            gc.collect()
            return pages()

        before = cycles(2000)
        self.assertLess(cycles(10000) - before, GROWTH, "pages")

    def test_release_beside_extend(self):
        """a thread may release a lease while another one extends it"""
        for _ in range(200):
            lease = self.client.acquire("shared", wait=5)
            thread = threading.Thread(target=self.extend_until_lost, args=(lease,))
            thread.start()
            lease.extend()
            lease.release()
            thread.join()

    def extend_until_lost(self, lease):
        with self.assertRaises(holdfast.Lost):
            while True:
                lease.extend()


class Errors(unittest.TestCase):
    def test_url(self):
        """an unknown engine is an error that names it, at once"""
        with self.assertRaises(holdfast.Error) as caught:
            holdfast.Client("nosuch://x")
        self.assertEqual(caught.exception.code, "CONFIG")
        self.assertIn("nosuch", str(caught.exception))

    def test_silent(self):
        """a server that does not answer is Unavailable"""
        client = holdfast.Client("redis://127.0.0.1:1")
        self.addCleanup(client.close)
        with self.assertRaises(holdfast.Unavailable):
            client.acquire("a", wait=0)
