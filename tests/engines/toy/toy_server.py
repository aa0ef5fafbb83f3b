#!/usr/bin/env python3
"""toy_server.py - the lock server of the toy engine (toy.c). Prints its URL and serves until it is killed.

A request is a line, and so is its reply, except that `show` has a line for the holder in front of it:

    acquire NAME ID TTL PID     granted TOKEN | busy MS
    extend NAME ID TTL          extended TOKEN | none
    check NAME ID               left TOKEN MS | none
    release NAME ID BURY        done | none; BURY 1: an acquire of this ID that is still on its way is refused
    show NAME                   [holder TOKEN LEFT SINCE TTL PID] done
"""
import asyncio
import time

BURIED_FOR = 60
holds = {}  # name -> hold
buried = {}  # id -> until when
last_token = 0


def now():
    return time.monotonic()


def hold_of(name):
    hold = holds.get(name)
    if hold and hold["end"] <= now():
        del holds[name]
        return None
    return hold


def own(name, attempt):
    hold = hold_of(name)
    return hold if hold and hold["id"] == attempt else None


def left_ms(hold):
    return max(0, int((hold["end"] - now()) * 1000))


def lengthen(hold, ttl):
    hold["end"] = max(hold["end"], now() + int(ttl) / 1000)
    hold["ttl"] = int(ttl)


def acquire(name, attempt, ttl, pid):
    global last_token
    hold = hold_of(name)
    if hold and hold["id"] != attempt:
        return f"busy {left_ms(hold)}"
    if buried.get(attempt, 0) > now():
        return "busy 0"
    if not hold:
        last_token = max(last_token + 1, time.time_ns() // 1000)  # above those of an earlier server
        hold = holds[name] = {"id": attempt, "token": last_token, "pid": int(pid), "since": now(), "end": 0}
    lengthen(hold, ttl)
    return f"granted {hold['token']}"


def extend(name, attempt, ttl):
    hold = own(name, attempt)
    if not hold:
        return "none"
    lengthen(hold, ttl)
    return f"extended {hold['token']}"


def check(name, attempt):
    hold = own(name, attempt)
    return f"left {hold['token']} {left_ms(hold)}" if hold else "none"


def release(name, attempt, bury):
    if bury == "1":
        for old in [each for each, until in buried.items() if until <= now()]:
            del buried[old]
        buried[attempt] = now() + BURIED_FOR
    if not own(name, attempt):
        return "none"
    del holds[name]
    return "done"


def show(name):
    hold = hold_of(name)
    if not hold:
        return "done"
    since = int((now() - hold["since"]) * 1000)
    return f"holder {hold['token']} {left_ms(hold)} {since} {hold['ttl']} {hold['pid']}\ndone"


VERBS = {"acquire": acquire, "extend": extend, "check": check, "release": release, "show": show}


async def serve(reader, writer):
    while line := await reader.readline():
        verb, *words = line.decode().split()
        writer.write((VERBS[verb](*words) + "\n").encode())
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"toy://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
