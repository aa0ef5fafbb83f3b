#!/usr/bin/env python3
# crowd.py - many clients wait for a semaphore; a third of them vanishes in different ways; the others get their turn.
# Prints TAP. Usage: crowd.py PORT CLIENTS PID [LIVE]; LIVE is the file in which the service counts the bytes of its heap.
import asyncio
import json
import os
import socket
import struct
import sys
import time

from tap import plan, record, result

port, clients, pid = (int(word) for word in sys.argv[1:4])
live = sys.argv[4] if len(sys.argv) > 4 else None
NAME, CAPACITY = "crowd", 4


def head(method, path, body=b""):
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method, path, len(body), body)


async def read_answer(reader):
    while True:
        text = await reader.readuntil(b"\r\n\r\n")
        if not text.startswith(b"HTTP/1.1 1"):
            break
    length = 0
    for line in text.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line[15:])
    body = await reader.readexactly(length)
    return int(text[9:12]), json.loads(body) if body[:1] in (b"{", b"[") else body.decode()


async def ask(method, path, body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(method, path, body))
    status, answer = await read_answer(reader)
    writer.close()
    if not isinstance(answer, str):
        kind = "application/json" if status < 400 else "application/problem+json"
        record(method.decode(), path.decode(), status, kind, json.dumps(answer).encode())
    return status, answer


slow = 0.05 if "HF_ROUGH" not in os.environ else 1
WAIT = b'{"ttlMs":30000,"waitMs":120000,"kind":"semaphore","capacity":%d}' % CAPACITY
turns, go = 0, None


async def client(i):
    """One in three vanishes, by a close or by a reset."""
    global turns
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sock = writer.get_extra_info("socket")
    writer.write(head(b"POST", b"/v1/locks/%s/leases" % NAME.encode(), WAIT))
    await writer.drain()
    if i % 3 == 0:
        await go.wait()
        if i % 2 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()
        return
    status, lease = await read_answer(reader)
    if status != 201:
        raise RuntimeError("%d %r" % (status, lease))
    turns += 1
    writer.write(head(b"DELETE", b"/v1/leases/" + lease["leaseId"].encode()))
    status, answer = await read_answer(reader)
    if status != 204:
        raise RuntimeError("release: %d %r" % (status, answer))
    writer.close()


async def waiters():
    status, lock = await ask(b"GET", b"/v1/locks/" + NAME.encode())
    return len(lock["waiters"]), len(lock["holders"])


async def until(seconds, test):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await test():
            return True
        await asyncio.sleep(0.05)
    return False


def descriptors():
    return len(os.listdir("/proc/%d/fd" % pid))


def live_kb():
    return struct.unpack("q", open(live, "rb").read(8))[0] // 1024


async def slowest_health():
    slowest = 0
    for _ in range(20):
        began = time.monotonic()
        await ask(b"GET", b"/health")
        slowest = max(slowest, time.monotonic() - began)
    return slowest


async def nothing_in_view():
    """The service's own view of the engine, which keeps what it saw last, has seen that the crowd is gone."""
    _, metrics = await ask(b"GET", b"/metrics")
    return "\nholdfast_waiters 0\n" in metrics and "\nholdfast_held 0\n" in metrics


async def crowd():
    global turns, go
    turns, go = 0, asyncio.Event()
    before = descriptors()
    first = []
    for i in range(CAPACITY):
        first.append((await ask(b"POST", b"/v1/locks/%s/leases" % NAME.encode(), WAIT))[1]["leaseId"])
    tasks = [asyncio.create_task(client(i)) for i in range(clients)]

    async def all_wait():
        return (await waiters())[0] == clients

    result(await until(60, all_wait), "%d clients wait" % clients, await waiters())
    # A service that is slow with so many is slow in every round; a machine that is busy leaves one alone.
    rounds = [await slowest_health()]
    while min(rounds) >= slow and len(rounds) < 10:
        rounds.append(await slowest_health())
    print("# slowest health of each 20: %s ms, descriptors %d" % ([int(t * 1000) for t in rounds], descriptors()))
    result(min(rounds) < slow, "with all of them waiting /health answers within %d ms" % (slow * 1000), rounds)
    vanishing = len(range(0, clients, 3))
    go.set()

    async def third_left():
        return (await waiters())[0] == clients - vanishing

    began = time.monotonic()
    result(await until(10, third_left), "who vanishes is out of the queue", await waiters())
    print("# all out after %.2f s" % (time.monotonic() - began))
    for lease in first:
        await ask(b"DELETE", b"/v1/leases/" + lease.encode())
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    wrong = [outcome for outcome in outcomes if outcome is not None]
    result(not wrong, "every other one gets its turn", wrong[:3])
    result(turns == clients - vanishing, "as many turns as clients stayed", turns)

    async def empty():
        return await waiters() == (0, 0)

    result(await until(10, empty), "the queue is empty and all permits are back", await waiters())
    grown = await until(10, lambda: asyncio.sleep(0, descriptors() <= before + 3))
    result(grown, "descriptors are back where they were", (before, descriptors()))


async def main():
    """Twice: what the service keeps for a crowd is there after the first one, a leak grows again."""
    await crowd()
    result(await until(20, nothing_in_view), "the service has seen that they are gone")
    before = live_kb() if live else 0
    await crowd()
    result(await until(20, nothing_in_view), "the service has seen that the second crowd is gone")
    if live:
        after = live_kb()
        print("# heap: %d kB after the first crowd, %d kB after the second" % (before, after))
        result(after < before + clients, "a second crowd leaves no memory behind: not a kilobyte a client", (before, after))


asyncio.run(main())
plan()
