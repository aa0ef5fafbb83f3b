"""python_redis.py - the Lock of Python's redis: polls every 100 ms, or every retry_ms."""
import redis
from worker import number, words, work


class Peer:
    def __init__(self):
        self.client = redis.Redis.from_url(words["url"])
        self.options = {"timeout": number("ttl_ms") / 1000, "thread_local": False}
        if words.get("retry_ms"):
            self.options["sleep"] = number("retry_ms") / 1000

    def acquire(self, key):
        lock = self.client.lock(key, **self.options)
        lock.acquire()
        return lock

    def release(self, lock):
        lock.release()


work(Peer(), sends="set,eval,evalsha")
