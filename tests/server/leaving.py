#!/usr/bin/env python3
# leaving.py - clients that go away at the worst moment, seen from the engine's other instance. Prints TAP.
#
# A client that asks again under its Idempotency-Key, at another instance, while the first one has not noticed yet that
# it left: what it is granted must stay its own. A client that resets while its grant is on its way: the grant is given
# back at once. Usage: leaving.py PORT OTHER_PORT PID
import http.client
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

from tap import plan, record, result

port, other, pid = (int(word) for word in sys.argv[1:4])


def ask(to, method, path, body=None, key=None):
    connection = http.client.HTTPConnection("127.0.0.1", to, timeout=20)
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    record(method, path, answer.status, answer.getheader("Content-Type", ""), text)
    return answer.status, json.loads(text) if text.startswith(b"{") else text


def begin(to, name, body, key=None):
    """A request whose answer is not read."""
    text = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", to))
    s.sendall(b"POST /v1/locks/%s/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s" % (
        name.encode(), len(text), b"Idempotency-Key: %s\r\n" % key.encode() if key else b"", text))
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def lock(name):
    return ask(other, "GET", "/v1/locks/" + name)[1]


def until(seconds, test):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def lease_of(to, name, body):
    return ask(to, "POST", "/v1/locks/%s/leases" % name, body)[1]["leaseId"]


def metric(name):
    for line in ask(port, "GET", "/metrics")[1].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])


def retry_once(i):
    """None, or what was wrong."""
    name, key, body = "retried%d" % i, "key-%d" % i, {"ttlMs": 20000, "waitMs": 8000}
    holder = lease_of(other, name, {"ttlMs": 20000})
    first = begin(port, name, body, key)
    if not until(5, lambda: len(lock(name)["waiters"]) == 1):
        return "the first request does not wait"
    answers = []
    retry = threading.Thread(target=lambda: answers.append(ask(other, "POST", "/v1/locks/%s/leases" % name, body, key)))
    release = threading.Thread(target=lambda: ask(other, "DELETE", "/v1/leases/" + holder))
    steps = [retry.start, release.start, lambda: reset(first)]
    random.shuffle(steps)
    for step in steps:
        step()
        time.sleep(random.choice((0, 0.002, 0.02)))
    retry.join()
    release.join()
    status, lease = answers[0]
    if status != 201:
        return "the retry got %d %r" % (status, lease)
    time.sleep(0.3)
    if ask(port, "GET", "/v1/leases/" + lease["leaseId"])[0] != 200:
        return "what the retry was granted is gone"
    if len(lock(name)["holders"]) != 1:
        return "not one holder: %r" % lock(name)
    if ask(port, "DELETE", "/v1/leases/" + lease["leaseId"])[0] != 204:
        return "it cannot be released"
    return None if until(2, lambda: lock(name)["free"]) else "a second lease was left: %r" % lock(name)


def retries():
    random.seed(9)
    wrong = [why for why in map(retry_once, range(8)) if why]
    result(not wrong, "a retry at another instance keeps what it is granted", wrong)


def asleep(seconds):
    """The first instance sleeps while its client leaves, the engine makes it the holder, and the client asks elsewhere."""
    name, key, body = "asleep%d" % seconds, "asleep%d" % seconds, {"ttlMs": 30000, "waitMs": 15000}
    holder = lease_of(other, name, {"ttlMs": 30000})
    first = begin(port, name, body, key)
    until(5, lambda: len(lock(name)["waiters"]) == 1)
    os.kill(pid, signal.SIGSTOP)
    ask(other, "DELETE", "/v1/leases/" + holder)
    granted = until(2, lambda: len(lock(name)["holders"]) == 1)
    reset(first)
    answers = []
    retry = threading.Thread(target=lambda: answers.append(ask(other, "POST", "/v1/locks/%s/leases" % name, body, key)))
    retry.start()
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    retry.join()
    status, lease = answers[0]
    time.sleep(0.5)
    alive = status == 201 and ask(other, "GET", "/v1/leases/" + lease["leaseId"])[0] == 200
    result(granted and alive, "what a retry is granted stays, although the first instance woke %d s later" % seconds, (granted, status, lock(name)))
    ended = alive and ask(other, "DELETE", "/v1/leases/" + lease["leaseId"])[0] == 204
    result(ended and until(2, lambda: lock(name)["free"]), "and its release leaves nothing", lock(name))


def undelivered():
    """The service sleeps while the engine makes its client the holder and the client resets."""
    gone = lambda: metric("holdfast_undelivered_total") + metric("holdfast_left_total")
    lost, slowest, before = [], 0, gone()
    for i in range(5):
        name = "undelivered%d" % i
        holder = lease_of(other, name, {"ttlMs": 20000})
        client = begin(port, name, {"ttlMs": 20000, "waitMs": 15000})
        until(5, lambda: len(lock(name)["waiters"]) == 1)
        os.kill(pid, signal.SIGSTOP)
        ask(other, "DELETE", "/v1/leases/" + holder)
        granted = until(2, lambda: len(lock(name)["holders"]) == 1 and not lock(name)["waiters"])
        reset(client)
        os.kill(pid, signal.SIGCONT)
        began = time.monotonic()
        free = until(5, lambda: lock(name)["free"])
        slowest = max(slowest, time.monotonic() - began)
        if not (granted and free):
            lost.append((name, granted, lock(name)))
    result(not lost, "a grant whose client reset meanwhile is given back", lost)
    result(slowest < 1, "at once", slowest)
    result(gone() - before >= 5, "each of them is counted", gone() - before)


def silence():
    """The answer was written and lost on its way: the lease is there, and a retry elsewhere is told of it."""
    name, body = "silent", {"ttlMs": 20000, "kind": "semaphore", "capacity": 5}
    first = begin(port, name, body, "silent")
    until(5, lambda: len(lock(name)["holders"]) == 1)
    status, lease = ask(other, "POST", "/v1/locks/%s/leases" % name, body, "silent")
    result(status == 201 and len(lock(name)["holders"]) == 1, "a retry after a lost answer takes no second permit", (status, lease))
    first.close()
    time.sleep(0.3)
    result(ask(other, "GET", "/v1/leases/" + lease["leaseId"])[0] == 200, "and stays when the first connection ends")


def in_use():
    """Both wait: the second one is not a second waiter, and says why it gave up."""
    name, body = "in-use", {"ttlMs": 20000, "waitMs": 500}
    holder = lease_of(other, name, {"ttlMs": 20000})
    first = begin(port, name, {"ttlMs": 20000, "waitMs": 500}, "both")
    until(5, lambda: len(lock(name)["waiters"]) == 1)
    status, problem = ask(other, "POST", "/v1/locks/%s/leases" % name, body, "both")
    result(status == 409 and problem["code"] == "busy", "after the first one's wait the second is told that it is held", (status, problem))
    first.close()
    first = begin(port, name, {"ttlMs": 20000, "waitMs": 9000}, "long")
    until(5, lambda: len(lock(name)["waiters"]) == 1)
    connection_body = {"ttlMs": 20000, "waitMs": 9000}
    second = threading.Thread(target=ask, args=(other, "POST", "/v1/locks/%s/leases" % name, connection_body, "long"))
    second.start()
    time.sleep(0.5)
    result(len(lock(name)["waiters"]) == 1, "two under one key at two instances are one waiter", lock(name))
    reset(first)
    result(until(2, lambda: len(lock(name)["waiters"]) == 1), "the second one takes over when the first leaves", lock(name))
    ask(other, "DELETE", "/v1/leases/" + holder)
    second.join()


retries()
asleep(1)
asleep(7)
undelivered()
silence()
in_use()
plan()
