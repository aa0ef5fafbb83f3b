"""A lock that takes the place of redis-py's, on the same keys:

    r = redis.Redis()
    with r.lock("job", timeout=10, lock_class=holdfast.redis.Lock):
        ...

Processes with either lock exclude each other, so a fleet moves host by host. What differs from
redis-py: waiters are served first come first served and do not poll (`sleep` is ignored); a lock
without `timeout` is renewed while its process lives and ends soon after it dies, instead of never;
every lock has a token that rises (`fencing_token`); a time is never shortened.
"""
from __future__ import annotations

import inspect
import os
import threading
import urllib.parse
import weakref
from typing import Any, Dict, Optional, Tuple, Union, cast

from . import Busy, Client, Error, Forked, Lease, Lost, Unavailable, log

try:
    from redis.exceptions import ConnectionError as NoConnection
    from redis.exceptions import LockError, LockNotOwnedError
except ImportError:  # redis-py is not needed for anything else

    class LockError(Exception):  # type: ignore[no-redef]
        """An error with a lock."""

    class LockNotOwnedError(LockError):  # type: ignore[no-redef]
        """The lock is not, or no longer, owned."""

    class NoConnection(Exception):  # type: ignore[no-redef]
        """The server gave no reply."""


__all__ = ["Lock", "url_of"]


def url_of(client: Any) -> str:
    """The URL for the server, or for the primary that sentinels watch, that a redis-py client talks
    to. The name is the key, as in redis-py."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ValueError(f"{client!r}: a lock needs a client of one server or of sentinels")
    options: Dict[str, Any] = pool.connection_kwargs
    database = options.get("db") or 0
    query = {"prefix": "", **_tls_query(pool)}
    if options.get("path"):
        if database:
            raise ValueError(f"db={database}: a lock through a Unix socket needs database 0")
        scheme, place = "redis+unix", urllib.parse.quote(options["path"])
    else:
        scheme, place = _place(pool)
        place += f"/{database}"
    return f"{scheme}://{_login(options)}{place}?{_text_of(query)}"


def _text_of(query: Dict[str, str]) -> str:
    return urllib.parse.urlencode(query, quote_via=urllib.parse.quote)


def _place(pool: Any) -> Tuple[str, str]:
    """Scheme and hosts."""
    scheme = "rediss" if _is_secure(pool) else "redis"
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is None:
        return scheme, _host(pool, 6379)
    if not pool.is_master:
        raise ValueError(f"{pool!r}: a lock is kept by the primary; use master_for()")
    hosts = ",".join(_host(each.connection_pool, 26379) for each in sentinels.sentinels)
    return scheme + "+sentinel", f"{hosts}/{urllib.parse.quote(pool.service_name, safe='')}"


def _host(pool: Any, default_port: int) -> str:
    options: Dict[str, Any] = pool.connection_kwargs
    host, port = options.get("host") or "localhost", options.get("port") or default_port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_secure(pool: Any) -> bool:
    return any("SSL" in kind.__name__ for kind in pool.connection_class.__mro__)


def _login(options: Dict[str, Any]) -> str:
    user, password = options.get("username"), options.get("password")
    if not password:
        return ""
    return f"{urllib.parse.quote(user or '', safe='')}:{urllib.parse.quote(password, safe='')}@"


def _tls_query(pool: Any) -> Dict[str, str]:
    if not _is_secure(pool):
        return {}
    names = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
    options: Dict[str, Any] = pool.connection_kwargs
    query = {names[key]: options[key] for key in names if options.get(key)}
    sentinels = getattr(pool, "sentinel_manager", None)
    if sentinels is not None:
        query["sentinel_tls"] = str(int(_is_secure(sentinels.sentinels[0].connection_pool)))
    return query


_clients: "weakref.WeakKeyDictionary[Any, Client]" = weakref.WeakKeyDictionary()
_clients_lock = threading.Lock()


def _client_of(redis: Any) -> Client:
    """One client for each connection pool."""
    pool = redis.connection_pool
    with _clients_lock:
        client = _clients.get(pool)
        if client is None:
            client = _clients[pool] = Client(url_of(redis))
        return client


def _after_fork() -> None:
    global _clients_lock
    _clients_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Lock:
    """The interface of redis.lock.Lock."""

    def __init__(self, redis: Any, name: Union[str, bytes], timeout: Optional[float] = None,
                 sleep: float = 0.1, blocking: bool = True,
                 blocking_timeout: Optional[float] = None, thread_local: bool = True,
                 raise_on_release_error: bool = True) -> None:
        if inspect.iscoroutinefunction(getattr(redis, "execute_command", None)):
            raise TypeError(f"{redis!r}: this lock would block its event loop; use holdfast.aio.Client")
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout, sleep
        self.blocking, self.blocking_timeout = blocking, blocking_timeout
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        self._client = _client_of(redis)
        self._local: Any = threading.local() if thread_local else _Shared()
        self._local.lease = None

    # ---- redis-py's calls ----

    def acquire(self, sleep: Optional[float] = None, blocking: Optional[bool] = None,
                blocking_timeout: Optional[float] = None, token: Optional[str] = None) -> bool:
        """True once the lock is held, False if it is not within blocking_timeout."""
        if token is not None:
            raise LockError("holdfast.redis.Lock makes its own tokens; token= is not supported")
        try:
            self._local.lease = self._client.acquire(
                self._text(), ttl=self.timeout or None, renew=not self.timeout,
                wait=self._wait(blocking, blocking_timeout))
        except Busy:
            return False
        except Unavailable as error:
            raise NoConnection(str(error)) from error
        return True

    def release(self) -> None:
        lease = self._lease("release")
        self._local.lease = None
        try:
            lease.release()
        except (Lost, Forked, Unavailable) as error:
            raise _as_redis_py(error, "release") from error

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """At least additional_time more (replace_ttl: from now). Never shortens."""
        lease = self._lease("extend")
        return self._extend(lease, "extend", additional_time + (0 if replace_ttl else lease.remaining))

    def reacquire(self) -> bool:
        """The whole timeout again, from now."""
        return self._extend(self._lease("reacquire"), "reacquire", self.timeout or 0)

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return bool(self.redis.exists(self.name))

    def owned(self) -> bool:
        """Whether this lock holds it."""
        lease = self._local_lease()
        return lease is not None and lease.held

    def __enter__(self) -> "Lock":
        if self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            self.release()
        except LockError as error:
            if self.raise_on_release_error:
                raise
            log.warning("%s: %s", self._text(), error)

    # ---- What redis-py has not ----

    @property
    def fencing_token(self) -> int:
        """Rises with every grant of the name: pass it to a database that refuses older ones."""
        return self._lease("ask for the token of").token

    def _text(self) -> str:
        return self.name.decode() if isinstance(self.name, bytes) else self.name

    def _extend(self, lease: Lease, verb: str, seconds: float) -> bool:
        if not self.timeout:
            raise LockError(f"Cannot {verb} a lock with no timeout")
        try:
            lease.extend(seconds)
        except (Lost, Forked, Unavailable) as error:
            raise _as_redis_py(error, verb) from error
        return True

    def _wait(self, blocking: Optional[bool], blocking_timeout: Optional[float]) -> Optional[float]:
        if not (self.blocking if blocking is None else blocking):
            return 0
        return self.blocking_timeout if blocking_timeout is None else blocking_timeout

    def _local_lease(self) -> Optional[Lease]:
        return cast(Optional[Lease], getattr(self._local, "lease", None))

    def _lease(self, verb: str) -> Lease:
        lease = self._local_lease()
        if lease is None:
            raise LockError(f"Cannot {verb} an unlocked lock")
        return lease


def _as_redis_py(error: Error, verb: str) -> Exception:
    """The exception of redis-py for what went wrong with a lease."""
    if isinstance(error, Unavailable):
        return NoConnection(str(error))
    return LockNotOwnedError(f"Cannot {verb} a lock that's no longer owned")


class _Shared:
    """What threading.local is for one thread: for locks that threads hand to each other."""

    lease: Optional[Lease] = None
