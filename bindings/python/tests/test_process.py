"""test_process.py - the GIL, signals, forks, and every end of a process."""
import multiprocessing
import os
import signal
import sys
import tempfile
import time

import holdfast
from support import Case, on_every_engine, start

HOLD = """
import sys, holdfast
client = holdfast.Client(sys.argv[1])
lease = client.acquire("ends", ttl=20)
print("held", flush=True)
sys.stdin.readline()
"""


def _turns(url, path, count):
    client = holdfast.Client(url)
    for _ in range(count):
        with client.lock("processes"):
            with open(path, "r+") as counter:
                value = int(counter.read())
                counter.seek(0)
                counter.write(str(value + 1))
    client.close()


_left = {}  # what nobody frees: a client that is freed is closed


def _leave(url, how):
    client = _left["client"] = holdfast.Client(url)
    lease = _left["lease"] = client.acquire("left", ttl=20)
    if how == "raise":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raise ValueError(lease)
    sys.exit(3)


@on_every_engine
class Processes(Case):
    def test_gil(self):
        """C code that keeps the GIL for three ttls keeps the lock"""
        keeper = start("""
import ctypes, sys, holdfast
client = holdfast.Client(sys.argv[1])
with client.lock("gil", ttl=0.5) as lease:
    print("held", flush=True)
    ctypes.PyDLL(None).usleep(1500000)
    print(lease.held, flush=True)
""", self.url)
        self.assertEqual(keeper.stdout.readline(), "held\n")
        intruders, end = 0, time.monotonic() + 1.3
        while time.monotonic() < end:
            intruders += self.client.try_acquire("gil") is not None
            time.sleep(0.02)
        out, err = keeper.communicate(timeout=20)
        self.assertEqual((intruders, out, keeper.returncode), (0, "True\n", 0), err)

    def test_interrupt(self):
        """Ctrl-C ends a wait and leaves the queue"""
        held = self.client.acquire("interrupted")
        waiter = start("""
import sys, holdfast
client = holdfast.Client(sys.argv[1])
try:
    client.acquire("interrupted")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
""", self.url)
        self.eventually(lambda: self.waiters("interrupted"))
        waiter.send_signal(signal.SIGINT)
        self.assertEqual(waiter.stdout.readline(), "interrupted\n")
        self.assertEqual(self.waiters("interrupted"), [])
        waiter.communicate("\n", timeout=20)
        held.release()

    def ends(self, program):
        process = start(HOLD + program, self.url)
        self.assertEqual(process.stdout.readline(), "held\n")
        self.assertIsNone(self.client.try_acquire("ends"))
        process.communicate("\n", timeout=20)
        self.client.acquire("ends", wait=2).release()

    def test_end_of_program(self):
        """a program that ends leaves nothing held"""
        self.ends("")

    def test_exit(self):
        """nor does sys.exit()"""
        self.ends("sys.exit(3)")

    def test_exception(self):
        """nor does an exception"""
        self.ends("raise ValueError")

    def test_threads_at_exit(self):
        """nor does a program with a thread that waits"""
        self.ends("""
import threading
threading.Thread(target=lambda: client.acquire("ends"), daemon=True).start()
""")

    def killed(self, program, signal=None):
        """Without a last word of the process the lock is free by its ttl."""
        process = start(HOLD.replace("ttl=20", "ttl=1") + program, self.url)
        self.assertEqual(process.stdout.readline(), "held\n")
        if signal is not None:
            process.send_signal(signal)
        process.communicate("\n", timeout=20)
        self.client.acquire("ends", wait=3).release()

    def test_killed(self):
        """SIGKILL, SIGTERM, os._exit and exec leave what ends by its ttl"""
        self.killed("", signal.SIGKILL)
        self.killed("", signal.SIGTERM)
        self.killed("import os; os._exit(4)")
        self.killed("import os; os.execv('/bin/true', ['true'])")

    def test_end_of_children(self):
        """a child of multiprocessing that ends or fails leaves nothing held"""
        for method in "fork", "spawn":
            for how in "exit", "raise":
                child = multiprocessing.get_context(method).Process(target=_leave, args=(self.url, how))
                child.start()
                child.join(20)
                self.assertNotEqual(child.exitcode, 0)
                self.client.acquire("left", wait=2).release()

    def test_fork(self):
        """a forked child has clients of its own, and none of its parent's leases"""
        lease = self.client.acquire("forked")
        pid = os.fork()
        if pid == 0:
            try:
                forked = False
                try:
                    lease.release()
                except holdfast.Forked:
                    forked = True
                ok = forked and not lease.held and self.client.try_acquire("forked") is None
                with self.client.lock("child"):
                    pass
                self.client.close()
                os._exit(0 if ok else 1)
            except BaseException:
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertTrue(lease.held)
        lease.release()

    def test_with_in_child(self):
        """a child that leaves its parent's with block releases nothing"""
        done, wake = os.pipe()
        with self.client.lock("block") as lease:
            pid = os.fork()
            if pid:
                self.assertEqual(os.read(done, 1), b"x")
                self.assertTrue(lease.held)
                self.assertIsNone(holdfast.Client(self.url).try_acquire("block"))
        if pid == 0:
            os.write(wake, b"x")
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        os.close(done)
        os.close(wake)

    def multiprocessing_turns(self, method):
        with tempfile.NamedTemporaryFile("w") as counter:
            counter.write("0")
            counter.flush()
            context = multiprocessing.get_context(method)
            workers = [context.Process(target=_turns, args=(self.url, counter.name, 20))
                       for _ in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(60)
            with open(counter.name) as result:
                self.assertEqual(result.read(), "60")

    def test_multiprocessing_fork(self):
        """forked workers lose no turn"""
        self.multiprocessing_turns("fork")

    def test_multiprocessing_spawn(self):
        """spawned workers lose no turn"""
        self.multiprocessing_turns("spawn")
