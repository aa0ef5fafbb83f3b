"""test_gil.py - C code keeps the GIL for three ttls. This package keeps its lock; a thread of Python
that renews redis-py's lock cannot run, nor can a callback of ctypes, behind which the library's own
renewals then wait: a second holder gets in. That is why no callback of ours takes the GIL."""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import holdfast  # noqa: E402
from support import URLS, start  # noqa: E402

SERVER = next(url for url in URLS if url.startswith("redis:"))
KEEP = """
import ctypes, sys, threading, time
def keep_the_gil():
    print("held", flush=True)
    ctypes.PyDLL(None).usleep(1500000)
"""
OURS = KEEP + """
import holdfast
with holdfast.Client(sys.argv[1]).lock("gil", ttl=0.5):
    keep_the_gil()
"""
REDIS_PY = KEEP + """
import redis
lock = redis.Redis.from_url(sys.argv[1]).lock("gil", timeout=0.5, thread_local=False)
lock.acquire()
def renew():
    while True:
        time.sleep(0.1)
        lock.reacquire()
threading.Thread(target=renew, daemon=True).start()
time.sleep(1.2)
assert lock.owned()  # a thread that may run renews
keep_the_gil()
"""
CTYPES = KEEP + """
class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("name_len", ctypes.c_size_t),
                ("kind", ctypes.c_int), ("units", ctypes.c_uint32), ("capacity", ctypes.c_uint32),
                ("ttl_ms", ctypes.c_int64), ("wait_ms", ctypes.c_int64), ("flags", ctypes.c_uint32),
                ("max_hold_ms", ctypes.c_int64)] + [(n, ctypes.c_void_p) for n in "owner label correlation lost arg attempt".split()]
library = ctypes.CDLL(sys.argv[2])
client, lease, other = (ctypes.c_void_p() for _ in range(3))
assert library.hf_open(sys.argv[1].encode(), None, ctypes.byref(client)) == 0
def request(**values):
    return ctypes.byref(Request(size=ctypes.sizeof(Request), flags=1, ttl_ms=500, **values))
assert library.hf_acquire(client, request(name=b"gil"), ctypes.byref(lease)) == 0
done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: None)
assert library.hf_acquire_start(client, request(name=b"gil", wait_ms=200), done, None, ctypes.byref(other)) == 0
time.sleep(0.05)
keep_the_gil()  # meanwhile the wait ends, and its callback is due
"""


class Gil(unittest.TestCase):
    def second_holder(self, program, *arguments, prefix):
        """Whether another process gets the lock while the GIL is kept."""
        keeper = start(program, *arguments)
        self.addCleanup(keeper.communicate)
        self.assertEqual(keeper.stdout.readline(), "held\n", keeper.poll() and keeper.stderr.read())
        with holdfast.Client(SERVER + prefix) as other:
            end = time.monotonic() + 1.3
            while time.monotonic() < end:
                if other.try_acquire("gil", ttl=1, renew=False):
                    return True
                time.sleep(0.02)
        return False

    def test_ours(self):
        """this package: no second holder"""
        self.assertFalse(self.second_holder(OURS, SERVER, prefix=""))

    def test_redis_py(self):
        """redis-py with a thread that renews: a second holder gets in"""
        self.assertTrue(self.second_holder(REDIS_PY, SERVER, prefix="/0?prefix="))

    def test_ctypes(self):
        """a callback of ctypes: a second holder gets in"""
        library = os.environ["HF_LIBRARY"]
        subprocess.run(["test", "-e", library], check=True)
        self.assertTrue(self.second_holder(CTYPES, SERVER, library, prefix=""))
