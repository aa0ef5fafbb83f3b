"""peer_redis_py.py - a holder or a waiter of failover_peers: the Lock of redis-py on a primary found by Sentinel.

    peer_redis_py.py hold|wait PORT,PORT,PORT PASSWORD TTL_MS

It says what happens, with the time of the monotonic clock: asks, got, lost, end.
"""
import select
import sys
import time

from redis.exceptions import LockError, RedisError
from redis.sentinel import Sentinel

mode, ports, password, ttl_ms = sys.argv[1:]
sentinels = [("127.0.0.1", int(port)) for port in ports.split(",")]
client = Sentinel(sentinels, socket_timeout=1).master_for("mymaster", password=password, socket_timeout=1)
ttl = int(ttl_ms) / 1000


def say(what):
    print(what, time.monotonic_ns(), flush=True)


def take():
    lock = client.lock("peer:redis-py", timeout=ttl, thread_local=False)
    while True:
        try:
            if lock.acquire():
                return lock
        except RedisError:
            time.sleep(0.05)


def hold(lock):
    """Until a line comes; extends the lock every third of its ttl. True: it was not lost."""
    while True:
        if select.select([sys.stdin], [], [], ttl / 3)[0]:
            return True
        try:
            lock.reacquire()
        except LockError:
            return False
        except RedisError:
            pass  # tried again at the next third


say("asks")
mine = take()
say("got")
if mode == "wait":
    time.sleep(0.05)
elif not hold(mine):
    say("lost")
say("end")
try:
    mine.release()
except (LockError, RedisError):
    pass
