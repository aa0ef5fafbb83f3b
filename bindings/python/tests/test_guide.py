"""test_guide.py - docs/from-redis-py.md is true: both columns of its table run, and exclude each other."""
import asyncio
import os
import re
import unittest
import urllib.parse

import holdfast
import holdfast.aio
import holdfast.redis
from support import URLS

try:
    import redis
    import redis.asyncio
except ImportError:
    redis = None

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "from-redis-py.md")
SERVERS = [url for url in URLS if url.startswith("redis:")]


def column(number):
    """The code of one column, a line for each row; the last code of a cell counts."""
    with open(PAGE) as page:
        rows = [line.split(" | ") for line in page if line.startswith("| `")]
    return [re.findall("`([^`]*)`", row[number])[-1] for row in rows]


@unittest.skipIf(redis is None, "redis-py is not installed")
@unittest.skipUnless(SERVERS, "no Redis server was given")
class Guide(unittest.TestCase):
    def setUp(self):
        self.place = urllib.parse.urlsplit(SERVERS[0])
        self.server = redis.Redis.from_url(SERVERS[0])
        self.addCleanup(self.server.close)
        self.server.flushall()
        self.worked = []
        self.names = {"redis": redis, "holdfast": holdfast, "work": self.work}

    def work(self):
        self.worked.append(self.server.exists("job"))

    def run_line(self, line):
        line = line.replace("redis://localhost", f"redis://{self.place.netloc}")
        line = line.replace('host="localhost"', f'host="127.0.0.1", port={self.place.port}')
        if line.startswith("async "):
            exec("async def block():\n    " + line, self.names)
            asyncio.run(self.names["block"]())
        elif re.match(r"with |[a-z]+ = |lock = ", line):
            exec(line, self.names)
        else:
            return eval(line, self.names)
        return None

    def held(self):
        return self.server.exists("job")

    def both(self, number, has_object):
        lines = column(number)
        results = {line: self.run_line(line) for line in lines[:5]}
        self.assertEqual(self.held(), 1, "acquired")
        results.update((line, self.run_line(line)) for line in lines[5:10])
        self.assertEqual(self.held(), 0, "released")
        results.update((line, self.run_line(line)) for line in lines[10:13])
        self.assertEqual(self.held(), 1, "tried")
        self.server.flushall()
        self.run_line(lines[13])
        self.assertEqual(self.worked, [1] * len(self.worked))
        self.assertEqual(results[lines[5]], True, lines[5])
        self.assertEqual(results[lines[6]], True, lines[6])
        self.assertTrue(results[lines[10]])
        self.assertEqual(len(lines), 14)
        self.assertIsInstance(self.names[has_object], object)

    def test_left(self):
        """what the reader wrote runs with redis-py"""
        self.both(0, "lock")
        self.assertEqual(len(self.worked), 3)

    def test_right(self):
        """what the reader writes now runs with the package, on the same key"""
        self.names["r"] = self.server
        self.both(1, "lease")
        self.assertEqual(len(self.worked), 3)
        self.names["locks"].close()

    def test_rows(self):
        """every row has two columns of code"""
        for left, right in zip(column(0), column(1)):
            self.assertTrue(left and right)
