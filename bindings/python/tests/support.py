"""support.py - what the tests share: the URLs to try, and programs in processes of their own."""
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

import holdfast

URLS = os.environ.get("HF_TEST_URLS", "").split() or ["local:" + tempfile.mkdtemp() + "/table"]


# Pages by which memory may grow in ten thousand cycles. ASan keeps what was freed for a while.
GROWTH = 200 if "libasan" not in os.environ.get("LD_PRELOAD", "") else 100000


def pages():
    """The resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1])


def say_to_redis(url, *words):
    """One command to a Redis server, without a library."""
    place = urllib.parse.urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as server:
        server.sendall(" ".join(words).encode() + b"\r\n")
        return server.recv(4096)


@contextlib.contextmanager
def paused(url, seconds):
    """The server answers nobody for a while."""
    say_to_redis(url, "CLIENT", "PAUSE", str(int(seconds * 1000)), "ALL")
    yield


class Case(unittest.TestCase):
    """A test with a client at `self.url`; made once for every URL."""

    url = URLS[0]

    def setUp(self):
        self.client = holdfast.Client(self.url)
        self.addCleanup(self.client.close)

    def eventually(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "this did not come true in time")
            time.sleep(0.01)

    def waiters(self, name):
        return [row for row in self.client.list(name) if row["role"] == "waiter"]


def on_every_engine(case):
    """A copy of the case for every URL, beside the class itself."""
    module = sys.modules[case.__module__]
    for url in URLS[1:]:
        engine = url.split(":")[0].title()
        setattr(module, case.__name__ + engine, type(case.__name__ + engine, (case,), {"url": url}))
    return case


def start(program, *arguments):
    """Runs a text as a Python program with the package on its path."""
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
