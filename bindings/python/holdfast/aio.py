"""Holdfast for asyncio: `async with client.lock("order:7", wait=5) as lease:`.

A wait is cancelled with its task. If the lease is lost inside the block, the task is cancelled and
the block raises Lost, as asyncio.timeout() does with TimeoutError. Renewal is the library's own
thread: it goes on while the loop is blocked.
"""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

from . import (Busy, Closed, Error, Forked, Lease, Leases, Lost, Seconds, _Base, _Deadline,
               _in_order, _make_error, log)

__all__ = ["Client", "Lock"]

_DONE, _LOST, _RELEASED, _EXTENDED = 0, 1, 2, 3
_Key = Tuple[int, int]  # which call, of which lease

# A server nearby replies sooner than the loop could go round. So the only call in flight first waits
# this long for its reply, in microseconds; if none comes, the next ones wait for their events.
_NEARBY, _PAUSE = 100, 32

# A task whose calls are all answered so soon never suspends. It does once in so many seconds, so that
# other tasks have their turn.
_TURN = 0.001


class Client(_Base):
    """Belongs to the event loop in which it is first used."""

    _has_loop = True

    def __init__(self, url: Optional[str] = None) -> None:
        super().__init__(url)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._waits: Dict[_Key, "asyncio.Future[None]"] = {}
        self._blocks: Dict[int, "Lock"] = {}
        self._extends = itertools.count(1)
        self._distant = 0  # calls until the next one tries whether the server is nearby
        self._resting = 0  # tasks in _let_others_run()
        self._turn_at = 0.0  # when other tasks last had their turn

    def lock(self, *names: str, **options: Any) -> "Lock":
        """For `async with`; see holdfast.Client.acquire for the options."""
        return Lock(self, names, options)

    async def acquire(self, name: str, **options: Any) -> Lease:
        """Waits in the queue and returns a held lease. Release it with release()."""
        if time.monotonic() - self._turn_at > _TURN:
            await self._let_others_run()
        self._attach()
        lease: Lease = self._open().acquire_start(name, **options)
        lease._client = self
        if not lease.token:
            await self._grant(lease)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("granted %s, token %d", name, lease.token)
        return lease

    async def try_acquire(self, name: str, **options: Any) -> Optional[Lease]:
        """As acquire(), but does not wait; None if the lock is busy."""
        try:
            return await self.acquire(name, wait=0, **options)
        except Busy:
            return None

    async def acquire_all(self, names: Sequence[str], *, wait: Optional[Seconds] = None,
                          **options: Any) -> Leases:
        """Several names, all or none, without deadlock. wait bounds the whole call."""
        deadline = _Deadline(wait)
        taken: Dict[str, Lease] = {}
        try:
            for name in _in_order(names):
                taken[name] = await self.acquire(name, wait=deadline.left(), **options)
        except BaseException:
            await self._release_all(list(taken.values()))
            raise
        return Leases(taken[name] for name in dict.fromkeys(names))

    async def release(self, lease: Lease) -> None:
        """Releases, and waits for the reply without blocking the loop. If the task is cancelled
        meanwhile, the release goes on."""
        if self._start_release(lease):
            await self._outcome(_RELEASED, lease.id)

    async def extend(self, lease: Lease, ttl: Seconds = 0) -> None:
        """The lease is good for at least ttl from now; 0: for its own ttl. Never shortens."""
        if self._open().answers_at_once:
            lease.extend(ttl)
        else:
            await self._change(lambda id: lease.extend_start(ttl, id))

    async def upgrade(self, lease: Lease) -> None:
        """The only reader becomes the writer, with a new token. Busy if there are other readers: the
        read lease stays held."""
        if self._open().answers_at_once:
            lease.upgrade()
        else:
            await self._change(lease.upgrade_start)

    async def downgrade(self, lease: Lease) -> None:
        """The writer becomes a reader; other readers may join."""
        if self._open().answers_at_once:
            lease.downgrade()
        else:
            await self._change(lease.downgrade_start)

    async def _change(self, start: Callable[[int], None]) -> None:
        """A call on a lease that stays held; start(id) begins it. If the task is cancelled
        meanwhile, the call goes on."""
        self._attach()
        id = next(self._extends) & 0xFFFFFFFF
        start(id)
        await self._outcome(_EXTENDED, id)

    async def list(self, prefix: Optional[str] = None) -> List[Dict[str, Any]]:
        """A dict for every holder and waiter of the names that begin with prefix."""
        return await asyncio.get_running_loop().run_in_executor(None, self._open().list, prefix)

    async def close(self, timeout: Seconds = 1) -> None:
        """Releases what is held and ends all waits with Closed."""
        handle = self._handle
        if handle is not None and self._loop is not None:
            self._loop.remove_reader(handle.event_fd())
        self._loop = None
        for future in self._waits.values():
            if not future.done():
                future.set_exception(Closed("CLOSED", "the client was closed during the wait"))
        if handle is None:
            self._close(timeout)
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._close, timeout)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        await self.close()

    # ---- Waiting ----

    async def _grant(self, lease: Lease) -> None:
        """Returns when the lease is granted. A cancelled task leaves the queue first, and a grant
        that came before the cancel is released."""
        if self._is_nearby(_DONE, lease.id):
            lease.granted()
            return
        key = (_DONE, lease.id)
        try:
            await self._expect(key)
        except asyncio.CancelledError:
            with contextlib.suppress(Error):
                lease.cancel()
            if await self._finish(key) is None:
                lease.granted()
                await self._release_all([lease])
            raise
        finally:
            self._waits.pop(key, None)
        lease.granted()

    def _start_release(self, lease: Lease) -> bool:
        """False: the lease is released. True: the outcome has yet to come."""
        if self._loop is None and not lease.forked:
            raise Lost("NOT_HELD", f"{lease.name}: the lease ended when its client was closed")
        if self._open().answers_at_once:
            lease.release()
            return False
        self._attach()
        lease.release_start()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("released %s, token %d", lease.name, lease.token)
        return True

    async def _release_all(self, leases: Sequence[Lease]) -> Tuple[Optional[Error], bool]:
        """Releases all and waits for the replies, although this task may be cancelled. The first
        error, and whether the task was cancelled meanwhile."""
        errors: List[Optional[Error]] = []
        keys: List[_Key] = []
        cancelled = False
        for lease in leases:
            try:
                if not self._start_release(lease):
                    continue
                if len(leases) == 1 and self._is_nearby(_RELEASED, lease.id):
                    await self._let_others_run()
                    continue
                key = (_RELEASED, lease.id)
                self._expect(key)
                keys.append(key)
            except Error as error:
                errors.append(error)
            except asyncio.CancelledError:  # the lease is released
                cancelled = True
        for key in keys:
            try:
                await self._waits[key]
            except asyncio.CancelledError:
                cancelled = True
                errors.append(await self._finish(key))
            except Error as error:
                errors.append(error)
            finally:
                self._waits.pop(key, None)
        failed = [error for error in errors if error and not isinstance(error, (Closed, Forked))]
        return (failed[0] if failed else None), cancelled

    def _expect(self, key: _Key) -> "asyncio.Future[None]":
        """A future for an outcome. Its caller removes it from _waits."""
        if self._loop is None:
            raise Closed("CLOSED", "the client is closed")
        future = self._waits[key] = self._loop.create_future()
        return future

    def _is_nearby(self, kind: int, id: int) -> bool:
        """True: the reply is here already, and it is good."""
        if self._distant:
            self._distant -= 1
            return False
        if self._waits or self._resting or self._handle is None:
            return False
        seen = self._handle.reply_within(kind, id, _NEARBY)
        if seen & 2 and self._loop is not None:  # the loop cannot see events that have been read
            self._loop.call_soon(self._on_events)
        if not seen:
            self._distant = _PAUSE
        return bool(seen & 1)

    async def _let_others_run(self) -> None:
        """Those that begin a call meanwhile send it and suspend: so the requests of many tasks go
        out together, and not one by one."""
        self._resting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._resting -= 1
        self._turn_at = time.monotonic()

    async def _outcome(self, kind: int, id: int) -> None:
        if self._is_nearby(kind, id):
            await self._let_others_run()
            return
        key = (kind, id)
        try:
            await self._expect(key)
        finally:
            self._waits.pop(key, None)

    async def _finish(self, key: _Key) -> Optional[Error]:
        """The outcome of a call whose future was cancelled with this task, which may be cancelled
        again and again meanwhile."""
        future = self._waits[key]
        if future.cancelled():
            if self._loop is None:
                return Closed("CLOSED", "the client was closed during the wait")
            future = self._expect(key)
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        return cast(Optional[Error], future.exception())

    # ---- Events of the library ----

    def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._closed:
            raise Closed("CLOSED", "the client is closed")
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("this holdfast.aio.Client belongs to another event loop")
        loop.add_reader(self._open().event_fd(), self._on_events)
        self._loop, self._waits, self._blocks = loop, {}, {}

    def _on_events(self) -> None:
        handle = self._handle
        for kind, id, code, text, holder in handle.take_events() if handle is not None else []:
            if kind != _LOST:
                self._decide((kind, id), code, text, holder)
            elif id in self._blocks:
                self._blocks[id]._on_lost(Lost("LOST", text))

    def _decide(self, key: _Key, code: Optional[str], text: str,
                holder: Optional[Dict[str, Any]] = None) -> None:
        future = self._waits.get(key)
        if future is None or (future.done() and not future.cancelled()):
            return
        if future.cancelled():  # its task has yet to run: it must find the outcome
            future = self._expect(key)
        if code is None:
            future.set_result(None)
        else:
            future.set_exception(_make_error(code, text, holder))

    def _forget(self) -> None:
        super()._forget()
        self._loop, self._waits, self._blocks = None, {}, {}


class Lock:
    """`async with`: entered once at a time. With several names the block gets Leases."""

    def __init__(self, client: Client, names: Sequence[str], options: Dict[str, Any]) -> None:
        if not names:
            raise Error("INVALID", "name: at least one is needed")
        self._client, self.names, self._options = client, tuple(names), options
        self._leases: List[Lease] = []
        self._task: Optional["asyncio.Task[Any]"] = None
        self._lost: Optional[Lost] = None
        self._inside = False
        self._cancelling = 0  # cancellations of the task that were not ours, when it entered

    async def __aenter__(self) -> Any:
        if self._inside:
            raise RuntimeError("this lock is entered already; make one for each block")
        self._inside, self._lost = True, None
        try:
            held = await self._acquire()
        except BaseException:
            self._inside = False
            raise
        self._leases = held if isinstance(held, Leases) else [held]
        self._task = asyncio.current_task()
        self._cancelling = getattr(self._task, "cancelling", int)()
        for lease in self._leases:
            self._client._blocks[lease.id] = self
        if not all(lease.held for lease in self._leases):
            self._on_lost(Lost("LOST", f"{self.names[0]}: the lease was lost at once"))
        return held

    async def _acquire(self) -> Any:
        if len(self.names) == 1:
            return await self._client.acquire(self.names[0], **self._options)
        return await self._client.acquire_all(self.names, **self._options)

    def _on_lost(self, why: Lost) -> None:
        if self._lost is not None:
            return
        self._lost = why
        log.warning("%s", why)
        if self._task is not None:
            self._task.cancel()

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        for lease in self._leases:
            self._client._blocks.pop(lease.id, None)
        error, cancelled = await self._client._release_all(self._leases)
        if self._lost is not None:
            cancelled = await self._end_our_cancel(cancelled or _is_cancel(kind))
            error = self._lost
        self._inside = False
        if cancelled:
            raise asyncio.CancelledError
        if error is not None and (kind is None or (self._lost and _is_cancel(kind))):
            raise error

    async def _end_our_cancel(self, was_thrown: bool) -> bool:
        """Ends the cancellation that the loss began. True: somebody else cancelled the task, too,
        which Python before 3.11 cannot tell."""
        if not was_thrown:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        uncancel = getattr(self._task, "uncancel", None)
        return uncancel is not None and bool(uncancel() > self._cancelling)


def _is_cancel(kind: Any) -> bool:
    return kind is not None and issubclass(kind, asyncio.CancelledError)
