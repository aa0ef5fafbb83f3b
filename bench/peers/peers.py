"""peers.py - who is measured beside Holdfast: each peer's program, how its workers are spread over processes, what its
defaults are, and which workloads make sense for it."""
from dataclasses import dataclass, field

CONTENDED = [f"contended-{n}{section}" for n in (2, 10, 50, 100) for section in ("", "-1ms")]
ALONE = ["uncontended-1cpu", "uncontended-2cpu"]
WAITING = ["handoff", "idle-100", "killed-holder"]
QUORUM = ["redlock-5", "redlock-5-two-dead", "redlock-5-one-hung", "redlock-5-contended"]
MUTEX = ALONE + CONTENDED + WAITING
LOCAL = ["local-uncontended", "local-contended-2", "local-contended-10", "local-contended-100", "local-handoff"]


@dataclass
class Peer:
    program: str
    engine: str  # redis, etcd, postgres or local: what `run` must have running
    processes: int  # at most so many; its workers are spread over them
    workloads: list
    about: str
    words: dict = field(default_factory=dict)
    period_ms: float = 20  # a release comes at a random moment of this time, so that no phase of a retry is favoured
    idle_seconds: float = 0  # at least so long must waiting be watched to see what it costs


def tuned(peer, workloads, about):
    """The same with its retry turned down to 5 ms; where nobody waits that changes nothing, so it is not run there."""
    return Peer(peer.program, peer.engine, peer.processes, workloads, about, {"retry_ms": "5"}, 20)


redlock4 = Peer("redlock4.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64"],
                "its defaults: 200 ms and up to 100 ms by chance between tries; asked again after its 10 retries",
                period_ms=200)
redlock5 = Peer("redlock5.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64"], redlock4.about, period_ms=200)
redis_semaphore = Peer("redis_semaphore.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64", "semaphore-5"],
                       "its defaults: looks every 10 ms; asked again after its 10 s")
python_redis = Peer("python_redis.py", "redis", 10, MUTEX, "its defaults: looks every 100 ms", period_ms=100)
WAITED_FOR = ["contended-100", "contended-100-1ms"] + WAITING

PEERS = {
    "redlock4": redlock4,
    "redlock4-5ms": tuned(redlock4, WAITED_FOR + ["redlock-5-contended"], "retry turned down to 5 ms, no jitter"),
    "redlock5": redlock5,
    "redlock5-5ms": tuned(redlock5, WAITED_FOR + ["redlock-5-contended"], "retry turned down to 5 ms, no jitter"),
    "redis-semaphore": redis_semaphore,
    "redis-semaphore-5ms": tuned(redis_semaphore, WAITED_FOR + ["semaphore-5", "redlock-5-contended"],
                                 "retry turned down to 5 ms"),
    "simple-redis-mutex": Peer("simple_redis_mutex.mjs", "redis", 2, MUTEX + ["inflight-64"],
                               "its defaults: told through Pub/Sub, looks every 10 s", idle_seconds=10),
    "ioredis": Peer("ioredis.mjs", "redis", 2, MUTEX + ["inflight-64"],
                    "SET NX PX and compare-and-delete; whoever waits looks every 5 ms"),
    "python-redis": python_redis,
    "python-redis-5ms": tuned(python_redis, WAITED_FOR, "its sleep turned down to 5 ms"),
    "etcd-gateway": Peer("etcd_gateway.mjs", "etcd", 2, MUTEX,
                         "etcd's own lock through its HTTP gateway; one server that syncs to disk"),
    "etcdctl": Peer("command.py", "etcd", 2, ["uncontended-2cpu", "contended-2", "contended-10", "handoff"],
                    "etcdctl lock NAME: a process for each turn", {"kind": "etcdctl"}),
    "pg-advisory": Peer("pg_advisory", "postgres", 1000, MUTEX,
                        "pg_advisory_lock through libpq, prepared; a connection each"),
    "flock1": Peer("command.py", "local", 2, LOCAL, "flock FILE cat: two processes for each turn", {"kind": "flock"}),
}
