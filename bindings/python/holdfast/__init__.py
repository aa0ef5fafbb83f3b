"""Leases on named resources: locks, semaphores and read-write locks with fencing tokens.

    import holdfast

    with holdfast.lock("nightly", wait=5) as lease:
        work(lease.token)

A lock waits in a queue, first come first served; it is renewed while it is held, also while the
interpreter is busy; it ends when its process dies. Times are seconds or timedeltas. The place is
$HOLDFAST_URL, else this machine ("local:"); Client(url) names another.
"""
from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence, Type, TypeVar, Union

from . import _holdfast

__all__ = [
    "Busy", "Client", "Closed", "Error", "Forked", "Lease", "Leases", "Lock", "Lost", "Unavailable",
    "lock",
]
__version__: str = _holdfast.version

log = logging.getLogger("holdfast")
"""DEBUG: granted and released. WARNING: lost. Nothing is printed by itself."""

Seconds = Union[int, float, timedelta]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Error(Exception):
    """A status of the library. `code` is its name: "BUSY", "LOST", "CONFIG" ..."""

    def __init__(self, code: str = "INTERNAL", text: str = "") -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> Any:
        return type(self), (self.code, str(self))


class Busy(Error):
    """Held by another: BUSY, or TIMEOUT after a wait.

    `holder` says who, as far as the engine told: a row as list() has it, whose pid is 0 if only the
    time is known; None if nothing is. `retry_after`: seconds until that hold ends unless renewed.
    """

    holder: Optional[Dict[str, Any]] = None

    @property
    def retry_after(self) -> Optional[float]:
        left: Optional[float] = self.holder["remaining"] if self.holder else None
        return left if left is not None and left >= 0 else None


class Lost(Error):
    """The lease has ended: LOST, NOT_HELD."""


class Unavailable(Error):
    """No reply, or not from enough servers: UNAVAILABLE, NO_QUORUM, IN_DOUBT, NOT_REPLICATED."""


class Closed(Error):
    """The client is closed."""


class Forked(Error):
    """The lease or client belongs to the parent process."""


_CLASSES: Dict[str, Type[Error]] = {
    "BUSY": Busy, "TIMEOUT": Busy,
    "LOST": Lost, "NOT_HELD": Lost,
    "UNAVAILABLE": Unavailable, "NO_QUORUM": Unavailable, "IN_DOUBT": Unavailable,
    "NOT_REPLICATED": Unavailable,
    "CLOSED": Closed, "FORKED": Forked,
}


def _make_error(code: str, text: str, holder: Optional[Dict[str, Any]] = None) -> Error:
    error = _CLASSES.get(code, Error)(code, text)
    if isinstance(error, Busy):
        error.holder = holder
    return error


class Lease(_holdfast.Handle):
    """One hold. It ends with release(), or with the `with` that acquired it.

    Attributes: name; token, which rises with every grant; held; remaining, the seconds that are
    certainly left. A lease that is dropped while held stays held until its client is closed.
    """

    __slots__ = ("_client",)
    _client: Any  # a lease that is in use keeps its client from being closed

    def check(self) -> None:
        """Raises Lost unless the lease is held: before work that must not be done twice."""
        if not self.held:
            raise Lost("LOST", f"{self.name}: the lease was lost")

    def release(self) -> None:
        """Releases; the next waiter holds it at once. Raises Lost if the lease had ended before."""
        super().release()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("released %s, token %d", self.name, self.token)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        _release_at_exit([self], kind)

    def __reduce__(self) -> Any:
        raise TypeError("a lease cannot be pickled: it belongs to its process")

    def __repr__(self) -> str:
        return f"<holdfast.Lease {self.name!r} token={self.token} remaining={self.remaining:.3f}>"


class Leases(List[Lease]):
    """Several leases, acquired together, in the order of their names in the call."""

    @property
    def held(self) -> bool:
        return all(lease.held for lease in self)

    def check(self) -> None:
        for lease in self:
            lease.check()

    def release(self) -> None:
        """Releases all; raises the first error after the last one was tried."""
        failed = [error for error in map(_try_release, self) if error]
        if failed:
            raise failed[0]

    def __enter__(self) -> "Leases":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        _release_at_exit(self, kind)


def _try_release(lease: Lease) -> Optional[Error]:
    try:
        lease.release()
    except Error as error:
        return error
    return None


def _give_back(leases: Sequence[Lease]) -> None:
    for lease in leases:
        _try_release(lease)


def _release_at_exit(leases: Sequence[Lease], kind: Optional[Type[BaseException]]) -> None:
    """The end of a `with`: a loss is raised unless another exception is on its way."""
    if any(lease.forked for lease in leases):
        return  # a forked child leaves the block: it holds nothing
    failed: List[Error] = []
    for lease in leases:
        error = _try_release(lease)
        if error is None or isinstance(error, Closed):
            continue
        if isinstance(error, Lost):
            error = Lost("LOST", f"{lease.name}: the lease was lost while the work ran")
            log.warning("%s", error)
        failed.append(error)
    if failed and kind is None:
        raise failed[0]


_holdfast.setup(_make_error, Lease)


class _Base:
    """The handle of a client: opened when first used, and opened anew in a forked child. The URL
    is checked at once."""

    _all: "weakref.WeakSet[_Base]" = weakref.WeakSet()
    _has_loop = False  # an event loop reads the replies

    def __init__(self, url: Optional[str] = None) -> None:
        _holdfast.check_url(url)
        self.url = url
        self._handle: Optional[_holdfast.Client] = None
        self._closed = False
        self._opening = threading.Lock()
        self._all.add(self)

    def _open(self) -> _holdfast.Client:
        handle = self._handle
        if handle is not None:
            return handle
        with self._opening:
            if self._closed:
                raise Closed("CLOSED", "the client is closed")
            if self._handle is None:
                self._handle = _holdfast.Client(self.url, self._has_loop)
            return self._handle

    def _close(self, timeout: Seconds) -> None:
        with self._opening:
            self._closed = True
            handle = self._handle
        if handle is not None:
            handle.close(timeout)

    def _forget(self) -> None:
        """In a forked child: the parent's handle is left alone."""
        self._handle, self._opening = None, threading.Lock()

    def __reduce__(self) -> Any:
        return type(self), (self.url,)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.url or 'by default'}>"


class Client(_Base):
    """A place for locks, for any number of threads. Opens when first used; a URL that cannot be
    right is an error at once.

    url: "redis://host", "redlock://a,b,c", "local:" ...; None: $HOLDFAST_URL, else "local:".
    """

    def acquire(self, name: str, **options: Any) -> Lease:
        """Waits in the queue and returns a held lease. Ctrl-C ends the wait and leaves the queue.

        ttl: seconds that the lease outlives its process (30); wait: seconds, 0 not at all, None
        for ever (the default, unless URL or environment say otherwise); kind: "exclusive",
        "semaphore", "read", "write"; capacity, units: of a semaphore; owner: may enter again what
        the same owner holds; renew: False lets it end after ttl; max_hold: renewed no longer than
        this; label, correlation_id: shown to others and in logs.
        """
        taken: List[Lease] = []
        try:
            return self._take(taken, name, options)
        except BaseException:
            _give_back(taken)
            raise

    def _take(self, taken: List[Lease], name: str, options: Dict[str, Any]) -> Lease:
        """Also adds the lease to taken, so that the caller has it if a signal's handler raises."""
        lease: Lease = self._open().acquire(name, taken, **options)
        lease._client = self
        if log.isEnabledFor(logging.DEBUG):
            log.debug("granted %s, token %d", name, lease.token)
        return lease

    def try_acquire(self, name: str, **options: Any) -> Optional[Lease]:
        """As acquire(), but does not wait; None if the lock is busy."""
        try:
            return self.acquire(name, wait=0, **options)
        except Busy:
            return None

    def acquire_all(self, names: Sequence[str], *, wait: Optional[Seconds] = None,
                    **options: Any) -> Leases:
        """Several names, all or none. They are taken in one order, so two callers cannot wait for
        each other. wait bounds the whole call."""
        taken: List[Lease] = []
        try:
            return self._take_all(taken, names, wait, options)
        except BaseException:
            _give_back(taken)
            raise

    def _take_all(self, taken: List[Lease], names: Sequence[str], wait: Optional[Seconds],
                  options: Dict[str, Any]) -> Leases:
        deadline = _Deadline(wait)
        for name in _in_order(names):
            self._take(taken, name, {**options, "wait": deadline.left()})
        found = {lease.name: lease for lease in taken}
        return Leases(found[name] for name in dict.fromkeys(names))

    def lock(self, *names: str, **options: Any) -> "Lock":
        """For `with`, or as a decorator; see acquire() for the options."""
        return Lock(self, names, options)

    def list(self, prefix: Optional[str] = None) -> List[Dict[str, Any]]:
        """A dict for every holder and waiter of the names that begin with prefix."""
        return self._open().list(prefix)

    def close(self, timeout: Seconds = 1) -> None:
        """Releases what is held and ends all waits with Closed."""
        self._close(timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()


def _in_order(names: Sequence[str]) -> List[str]:
    """The one order in which everybody takes several names."""
    if isinstance(names, str):
        raise TypeError(f"names: {names!r} is one name; use a list")
    if not names:
        raise Error("INVALID", "name: at least one is needed")
    return sorted(set(names), key=lambda text: text.encode())


class _Deadline:
    """A wait that several acquires share."""

    def __init__(self, wait: Optional[Seconds]) -> None:
        self._end = None if wait is None else _clock() + _as_seconds(wait)

    def left(self) -> Optional[float]:
        return None if self._end is None else max(0.0, self._end - _clock())


def _as_seconds(value: Seconds) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise Error("INVALID", f"wait: {value!r} is not a time; use seconds, 0 or more, or a timedelta")
    return float(value)


def _clock() -> float:
    import time

    return time.monotonic()


class Lock(contextlib.ContextDecorator):
    """`with client.lock("a") as lease:`. Any number of threads may enter it, each with a lease of
    its own; with several names the block gets Leases."""

    def __init__(self, client: Optional[Client], names: Sequence[str], options: Dict[str, Any]) -> None:
        if not names:
            raise Error("INVALID", "name: at least one is needed")
        self._client, self.names, self._options = client, tuple(names), options
        self._entered = threading.local()

    def acquire(self) -> Union[Lease, Leases]:
        taken: List[Lease] = []
        try:
            return self._take(taken)
        except BaseException:
            _give_back(taken)
            raise

    def __enter__(self) -> Any:
        stack = self._entered.__dict__.setdefault("stack", [])
        depth = len(stack)
        taken: List[Lease] = []
        try:
            stack.append(self._take(taken))
            return stack[depth]
        except BaseException:  # of a signal's handler, too: there is no block that would release
            del stack[depth:]
            _give_back(taken)
            raise

    def _take(self, taken: List[Lease]) -> Union[Lease, Leases]:
        client = self._client or default()
        if len(self.names) == 1:
            return client._take(taken, self.names[0], self._options)
        options = dict(self._options)
        return client._take_all(taken, self.names, options.pop("wait", None), options)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        stack = getattr(self._entered, "stack", None)
        if not stack:
            raise RuntimeError("this thread has not entered the lock")
        held = stack.pop()
        _release_at_exit(held if isinstance(held, Leases) else [held], kind)

    def _recreate_cm(self) -> "Lock":
        return self

    def __call__(self, function: _Function) -> _Function:
        """As a decorator. A call of a coroutine function or a generator returns before its body
        runs, and so would the lock be released before: TypeError."""
        if any(is_late(function) for is_late in _RUN_LATER):
            raise TypeError(f"{function!r} runs after its call has returned, and without the lock; "
                            "use `with` inside, or `async with` of holdfast.aio")
        return super().__call__(function)


_RUN_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


_default: Optional[Client] = None
_default_lock = threading.Lock()


def default() -> Client:
    """The client that lock() uses."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default


def lock(*names: str, **options: Any) -> Lock:
    """A lock at $HOLDFAST_URL, else on this machine. See Client.acquire for the options."""
    return Lock(None, names, options)


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for client in list(_Base._all):
        client._forget()
    _watch_pools()


def _at_exit() -> None:
    for client in list(_Base._all):
        handle = client._handle
        if handle is not None:
            with contextlib.suppress(Error):
                handle.close(1)


def _watch_pools() -> None:
    """Children of multiprocessing, and of Celery, end without atexit. They have finalizers of their
    own, which they forget when they start: hence two registrations."""
    for name in ("multiprocessing", "billiard"):
        util, process = sys.modules.get(name + ".util"), sys.modules.get(name + ".process")
        if util is None or process is None:
            continue
        util.register_after_fork(_Base, functools.partial(_close_at_end_of, util))
        if getattr(process.current_process(), "_parent_pid", None) is not None:
            _close_at_end_of(util)


def _close_at_end_of(util: Any, _: Any = None) -> None:
    util.Finalize(None, _at_exit, exitpriority=0)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
_watch_pools()
