"""peers.py - the locks that are measured beside Holdfast: the program of each peer, how its workers
are spread over processes, its defaults, and the workloads that make sense for it."""
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
    engine: str  # redis, etcd, postgres or local: the backend that it needs
    processes: int  # largest number of processes for its workers
    workloads: list
    about: str
    words: dict = field(default_factory=dict)
    period_ms: float = 20  # a release comes at a random moment of it, which favours no retry phase
    idle_seconds: float = 0  # shortest time to measure idle waiters


def tuned(peer, workloads, about):
    """The same peer with its retry interval set to 5 ms, for workloads in which workers wait."""
    return Peer(peer.program, peer.engine, peer.processes, workloads, about, {"retry_ms": "5"}, 20)


redlock4 = Peer("redlock4.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64"],
                "its defaults: 200 ms plus up to 100 ms of jitter between tries; called again after its 10 retries",
                period_ms=200)
redlock5 = Peer("redlock5.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64"], redlock4.about, period_ms=200)
redis_semaphore = Peer("redis_semaphore.mjs", "redis", 2, MUTEX + QUORUM + ["inflight-64", "semaphore-5"],
                       "its defaults: polls every 10 ms; called again after its 10 s")
python_redis = Peer("python_redis.py", "redis", 10, MUTEX, "its defaults: polls every 100 ms", period_ms=100)
WAITED_FOR = ["contended-100", "contended-100-1ms"] + WAITING

PEERS = {
    "redlock4": redlock4,
    "redlock4-5ms": tuned(redlock4, WAITED_FOR + ["redlock-5-contended"], "retry set to 5 ms, no jitter"),
    "redlock5": redlock5,
    "redlock5-5ms": tuned(redlock5, WAITED_FOR + ["redlock-5-contended"], "retry set to 5 ms, no jitter"),
    "redis-semaphore": redis_semaphore,
    "redis-semaphore-5ms": tuned(redis_semaphore, WAITED_FOR + ["semaphore-5", "redlock-5-contended"],
                                 "retry set to 5 ms"),
    "simple-redis-mutex": Peer("simple_redis_mutex.mjs", "redis", 2, MUTEX + ["inflight-64"],
                               "its defaults: notified through Pub/Sub, polls every 10 s", idle_seconds=10),
    "ioredis": Peer("ioredis.mjs", "redis", 2, MUTEX + ["inflight-64"],
                    "SET NX PX and compare-and-delete; a waiter polls every 5 ms"),
    "python-redis": python_redis,
    "python-redis-5ms": tuned(python_redis, WAITED_FOR, "its sleep set to 5 ms"),
    "etcd-gateway": Peer("etcd_gateway.mjs", "etcd", 2, MUTEX,
                         "etcd's own lock through its HTTP gateway; one server that syncs to disk"),
    "etcdctl": Peer("command.py", "etcd", 2, ["uncontended-2cpu", "contended-2", "contended-10", "handoff"],
                    "etcdctl lock NAME: a process for each turn", {"kind": "etcdctl"}),
    "pg-advisory": Peer("pg_advisory", "postgres", 1000, MUTEX,
                        "pg_advisory_lock through libpq, prepared statements; a connection for each worker"),
    "flock1": Peer("command.py", "local", 2, LOCAL, "flock FILE cat: two processes for each turn", {"kind": "flock"}),
}
