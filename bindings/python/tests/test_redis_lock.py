"""test_redis_lock.py - holdfast.redis.Lock in redis-py's place, and beside it on the same keys.

What redis-py's lock promises is tried on redis-py's own class and on ours, with the same tests. What
differs is tried on ours alone: see docs/from-redis-py.md."""
import os
import threading
import time
import unittest

import holdfast.redis
from support import URLS, paused

try:
    import redis
    import redis.asyncio
    import redis.sentinel
    from redis.exceptions import LockError, LockNotOwnedError
except ImportError:
    redis = None

SERVERS = [url for url in URLS if url.startswith("redis:")]


@unittest.skipIf(redis is None, "redis-py is not installed")
@unittest.skipUnless(SERVERS, "no Redis server was given")
class Server(unittest.TestCase):
    lock_class = holdfast.redis.Lock

    def setUp(self):
        self.server = redis.Redis.from_url(SERVERS[0])
        self.addCleanup(self.server.close)
        self.server.flushall()

    def lock(self, name, **options):
        options.setdefault("timeout", 10)
        return self.server.lock(name, lock_class=self.lock_class, **options)


class SameAsRedisPy(Server):
    """What a user of redis-py relies on, with our class."""

    def test_key(self):
        """the name is the key: it is there while the lock is held"""
        lock = self.lock("key")
        self.assertIsInstance(lock, self.lock_class)
        self.assertTrue(lock.acquire(blocking=False))
        self.assertEqual(self.server.exists("key"), 1)
        lock.release()
        self.assertEqual(self.server.exists("key"), 0)

    def test_competing(self):
        """of two locks one is had, and the other after its release"""
        first, second = self.lock("key"), self.lock("key")
        self.assertTrue(first.acquire(blocking=False))
        self.assertFalse(second.acquire(blocking=False))
        first.release()
        self.assertTrue(second.acquire(blocking=False))
        self.assertFalse(first.acquire(blocking=False))
        second.release()

    def test_again(self):
        """a lock can be taken again after its release"""
        lock = self.lock("key")
        for _ in range(3):
            self.assertTrue(lock.acquire())
            lock.release()

    def test_locked(self):
        """locked() is of the key, whoever has it"""
        lock, other = self.lock("key"), self.lock("key")
        self.assertFalse(other.locked())
        lock.acquire()
        self.assertTrue(lock.locked() and other.locked())
        lock.release()
        self.assertFalse(lock.locked() or other.locked())

    def test_owned(self):
        """owned() is of this lock alone"""
        lock, other = self.lock("key"), self.lock("key")
        lock.acquire()
        self.assertTrue(lock.owned())
        self.assertFalse(other.owned())
        lock.release()
        self.assertFalse(lock.owned())

    def test_timeout(self):
        """a lock ends by its timeout, of whole seconds or parts"""
        for timeout in 1, 0.3:
            lock = self.lock("key", timeout=timeout)
            lock.acquire()
            self.assertTrue(0 < self.server.pttl("key") <= timeout * 1000)
            time.sleep(timeout + 0.1)
            self.assertTrue(self.lock("key").acquire(blocking=False))
            self.server.flushall()

    def test_not_blocking(self):
        """blocking=False in the constructor does not wait"""
        self.lock("key").acquire()
        begin = time.monotonic()
        self.assertFalse(self.lock("key", blocking=False).acquire())
        self.assertLess(time.monotonic() - begin, 1)

    def test_blocking(self):
        """a lock waits until another is released"""
        first, second, got = self.lock("key"), self.lock("key", thread_local=False), []
        first.acquire()
        thread = threading.Thread(target=lambda: got.append(second.acquire(blocking_timeout=10)))
        thread.start()
        time.sleep(0.2)
        self.assertEqual(got, [])
        first.release()
        thread.join()
        self.assertEqual(got, [True])
        second.release()

    def test_blocking_timeout(self):
        """blocking_timeout bounds the wait, in the constructor and in the call"""
        self.lock("key").acquire()
        for options, call in ({"blocking_timeout": 0.3}, {}), ({}, {"blocking_timeout": 0.3}):
            begin = time.monotonic()
            self.assertFalse(self.lock("key", sleep=0.05, **options).acquire(**call))
            self.assertTrue(0.2 <= time.monotonic() - begin < 3)

    def test_with(self):
        """with holds the lock"""
        with self.lock("key") as lock:
            self.assertTrue(lock.owned())
            self.assertEqual(self.server.exists("key"), 1)
        self.assertEqual(self.server.exists("key"), 0)

    def test_with_busy(self):
        """with raises LockError if it is not had in time"""
        self.lock("key").acquire()
        with self.assertRaises(LockError):
            with self.lock("key", blocking_timeout=0.1):
                self.fail("two holders")

    def test_with_released(self):
        """with raises LockError if the lock was released inside"""
        with self.assertRaises(LockError):
            with self.lock("key") as lock:
                lock.release()

    def test_not_locked(self):
        """release, extend and reacquire of an unlocked lock are LockError"""
        lock = self.lock("key")
        for call in lock.release, lambda: lock.extend(1), lock.reacquire:
            with self.assertRaises(LockError):
                call()

    def test_not_owned(self):
        """the same of a lock that another has taken are LockNotOwnedError"""
        for call in (lambda lock: lock.release(), lambda lock: lock.extend(1),
                     lambda lock: lock.reacquire()):
            lock = self.lock("key")
            lock.acquire()
            self.server.set("key", "somebody else")
            with self.assertRaises(LockNotOwnedError):
                call(lock)
            self.assertEqual(self.server.get("key"), b"somebody else")
            self.server.delete("key")

    def test_no_timeout(self):
        """extend and reacquire of a lock without a timeout are LockError"""
        lock = self.lock("key", timeout=None)
        lock.acquire()
        for call in lambda: lock.extend(1), lock.reacquire:
            with self.assertRaises(LockError):
                call()
        lock.release()

    def test_extend(self):
        """extend adds to what is left"""
        lock = self.lock("key")
        lock.acquire()
        self.assertTrue(lock.extend(10))
        self.assertTrue(16000 < self.server.pttl("key") <= 20000)
        self.assertTrue(lock.extend(0.5))
        self.assertTrue(16000 < self.server.pttl("key") <= 20500)
        lock.release()

    def test_extend_from_now(self):
        """extend with replace_ttl counts from now"""
        lock = self.lock("key")
        lock.acquire()
        self.assertTrue(lock.extend(10, replace_ttl=True))
        self.assertTrue(8000 < self.server.pttl("key") <= 10000)
        lock.release()

    def test_reacquire(self):
        """reacquire counts the whole timeout from now"""
        lock = self.lock("key")
        lock.acquire()
        self.server.pexpire("key", 5000)
        self.assertTrue(lock.reacquire())
        self.assertTrue(8000 < self.server.pttl("key") <= 10000)
        lock.release()

    def test_threads(self):
        """another thread does not own the lock, unless thread_local is off"""
        for thread_local in True, False:
            lock, owned = self.lock("key", thread_local=thread_local), []
            lock.acquire()

            def ask():
                try:
                    owned.append(lock.owned())
                except AttributeError:  # redis-py's way to say that this thread has no token
                    owned.append(False)

            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            self.assertEqual(owned, [not thread_local])
            lock.release()

    def test_text_and_bytes(self):
        """names as bytes, and a client that decodes replies"""
        with self.lock(b"key") as lock:
            self.assertTrue(lock.locked())
            self.assertFalse(self.lock("key").acquire(blocking=False))
        text = redis.Redis.from_url(SERVERS[0], decode_responses=True)
        self.addCleanup(text.close)
        with text.lock("key", timeout=10, lock_class=self.lock_class) as lock:
            self.assertTrue(lock.owned())


class RedisPyItself(SameAsRedisPy):
    """The same tests with redis-py's own class: they ask for nothing else."""

    lock_class = None if redis is None else redis.lock.Lock


class Differences(Server):
    def test_no_timeout_is_renewed(self):
        """a lock without timeout is renewed, and ends soon after its process dies"""
        lock = self.lock("key", timeout=None)
        lock.acquire()
        self.assertTrue(0 < self.server.pttl("key") <= 30000)
        lock.release()
        with self.lock("key", timeout=0):
            self.assertTrue(0 < self.server.pttl("key") <= 30000)

    def test_fencing_token(self):
        """every grant has a token that rises"""
        tokens = []
        for _ in range(3):
            with self.lock("key") as lock:
                tokens.append(lock.fencing_token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_token(self):
        """token= is refused"""
        with self.assertRaises(LockError):
            self.lock("key").acquire(token="mine")

    def test_sleep(self):
        """sleep does not delay: a waiter has the lock when it is released"""
        first, waited = self.lock("key"), []
        first.acquire()

        def wait():
            with self.lock("key", sleep=30, blocking_timeout=20):
                waited.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        released = time.monotonic()
        first.release()
        thread.join(25)
        self.assertLess(waited[0] - released, 1)

    def test_never_shorter(self):
        """extend never shortens"""
        lock = self.lock("key")
        lock.acquire()
        lock.extend(2, replace_ttl=True)
        self.assertGreater(self.server.pttl("key"), 8000)
        lock.release()

    def test_quiet_release(self):
        """raise_on_release_error=False, as newer versions of redis-py pass it, logs instead"""
        with self.assertLogs("holdfast", "WARNING"):
            with holdfast.redis.Lock(self.server, "key", timeout=10, raise_on_release_error=False) as lock:
                lock.release()


    def test_no_server(self):
        """a server that does not reply is redis-py's ConnectionError"""
        nobody = redis.Redis(port=1)
        with self.assertRaises(redis.exceptions.ConnectionError):
            nobody.lock("key", timeout=1, lock_class=self.lock_class).acquire(blocking=False)

    def test_silent_server(self):
        """so is one that is silent when the lock is released"""
        patient = redis.Redis.from_url(SERVERS[0])
        self.addCleanup(patient.close)
        lock = patient.lock("silent", timeout=10, lock_class=self.lock_class)
        lock.acquire()
        with paused(SERVERS[0], 6), self.assertRaises(redis.exceptions.ConnectionError):
            lock.release()
        self.server.ping()  # waits until the pause is over

    def test_fork(self):
        """a forked child does not own its parent's lock"""
        lock = self.lock("forked")
        lock.acquire()
        pid = os.fork()
        if pid == 0:
            try:
                lock.release()
            except LockNotOwnedError:
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        lock.release()

    def test_asyncio(self):
        """a client of redis.asyncio is refused: the lock would block its loop"""
        with self.assertRaises(TypeError):
            redis.asyncio.Redis.from_url(SERVERS[0]).lock("key", lock_class=self.lock_class)


@unittest.skipIf(redis is None, "redis-py is not installed")
class Urls(unittest.TestCase):
    """Which server a client of redis-py talks to."""

    def url(self, client):
        url = holdfast.redis.url_of(client)
        holdfast.Client(url).close()
        return url

    def test_hosts(self):
        """host, port, database, login and certificates become a URL"""
        for options, url in [({}, "redis://localhost:6379/0?prefix="),
                             ({"host": "::1", "db": 3}, "redis://[::1]:6379/3?prefix="),
                             ({"username": "u:", "password": "p@/%"}, "redis://u%3A:p%40%2F%25@localhost:6379/0?prefix="),
                             ({"unix_socket_path": "/run/a b"}, "redis+unix:///run/a%20b?prefix="),
                             ({"ssl": True, "ssl_ca_certs": "/a b.pem"},
                              "rediss://localhost:6379/0?prefix=&ca=%2Fa%20b.pem")]:
            self.assertEqual(self.url(redis.Redis(**options)), url)

    def test_sentinels(self):
        """a client of sentinels has their URL, never that of a server of this machine"""
        watch = redis.sentinel.Sentinel([("s1", 26380), ("s2", 26379)])
        primary = watch.master_for("my/master", db=2, password="p")
        self.assertEqual(self.url(primary), "redis+sentinel://:p@s1:26380,s2:26379/my%2Fmaster/2?prefix=")
        with self.assertRaises(ValueError):
            holdfast.redis.url_of(watch.slave_for("my/master"))

    def test_cluster(self):
        """what is neither is refused"""
        with self.assertRaises(ValueError):
            holdfast.redis.url_of(object())


class Mixed(Server):
    def test_excludes(self):
        """redis-py's lock and ours exclude each other"""
        theirs = self.server.lock("both", timeout=10)
        self.assertTrue(theirs.acquire(blocking=False))
        self.assertFalse(self.lock("both").acquire(blocking=False))
        theirs.release()
        ours = self.lock("both")
        self.assertTrue(ours.acquire(blocking=False))
        self.assertFalse(theirs.acquire(blocking=False))
        ours.release()

    def test_crowd(self):
        """a mixed crowd of threads never overlaps"""
        inside, overlaps, turns = [], [], {None: 0, holdfast.redis.Lock: 0}

        def work(kind):
            end = time.monotonic() + 2
            while time.monotonic() < end:
                lock = self.server.lock("mixed", timeout=10, sleep=0.005, lock_class=kind)
                if lock.acquire(blocking_timeout=5):
                    overlaps.extend(inside)
                    inside.append(1)
                    turns[kind] += 1
                    inside.pop()
                    lock.release()

        threads = [threading.Thread(target=work, args=(kind,)) for kind in [*turns] * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(overlaps, [])
        self.assertGreater(min(turns.values()), 10, turns)


if __name__ == "__main__":
    unittest.main()
