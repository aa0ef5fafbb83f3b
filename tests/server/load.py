#!/usr/bin/env python3
# load.py - acquire and release over keep-alive connections, alone and beside slow-loris connections. Prints JSON.
# Usage: load.py pairs PORT SECONDS | loris PORT CONNECTIONS SECONDS | count PORT PAIRS [CONNECTIONS] |
#        waits PORT COUNT PID
import json
import socket
import sys
import time

mode, port = sys.argv[1], int(sys.argv[2])


def ask(s, request):
    """The status and body of an answer. As little of Python as can be: it is the service that is measured."""
    s.sendall(request)
    data = s.recv(65536)
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += s.recv(65536)
    at = data.find(b"Content-Length: ")
    total = end + 4 + (int(data[at + 16:data.index(b"\r", at)]) if 0 <= at < end else 0)
    while len(data) < total:
        data += s.recv(65536)
    return data[9:12], data[end + 4:]


BODY = b'{"ttlMs":20000}'
ACQUIRE = b"POST /v1/locks/load/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
RELEASE = b"DELETE /v1/leases/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


def pair(s):
    status, answer = ask(s, ACQUIRE)
    if status != b"201":
        raise SystemExit("acquire: %r %r" % (status, answer))
    status, answer = ask(s, RELEASE % json.loads(answer)["leaseId"].encode())
    if status != b"204":
        raise SystemExit("release: %r %r" % (status, answer))


def connect():
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def measure(seconds):
    s = connect()
    took, end = [], time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        pair(s)
        took.append(time.monotonic() - began)
    took.sort()
    return {"perSecond": len(took) / seconds, "p50Ms": took[len(took) // 2] * 1000, "p99Ms": took[len(took) * 99 // 100] * 1000}


def request(method, path, body=b""):
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        method, path, len(body), body)


def count_together(pairs, connections):
    """Pairs of many connections in step, each with a lock of its own: all ask before the first answer is read."""
    sockets = [connect() for _ in range(connections)]
    for _ in range(pairs // connections):
        for i, s in enumerate(sockets):
            s.sendall(request(b"POST", b"/v1/locks/load-%d/leases" % i, BODY))
        ids = [json.loads(ask(s, b"")[1])["leaseId"] for s in sockets]
        for s, lease in zip(sockets, ids):
            s.sendall(RELEASE % lease.encode())
        for s in sockets:
            if ask(s, b"")[0] != b"204":
                raise SystemExit("a release was refused")


def wait_together(count, pid):
    """The megabytes of the service while so many requests wait for a hundred locks that others hold."""
    holder = connect()
    for i in range(100):
        ask(holder, request(b"POST", b"/v1/locks/held-%d/leases" % i, b'{"ttlMs":600000}'))
    sockets = []
    for i in range(count):
        s = connect()
        s.sendall(request(b"POST", b"/v1/locks/held-%d/leases" % (i % 100), b'{"ttlMs":20000,"waitMs":300000}'))
        sockets.append(s)
    for _ in range(600):
        listed = json.loads(ask(holder, request(b"GET", b"/v1/locks/held-0"))[1])
        if len(listed["waiters"]) == count // 100:
            break
        time.sleep(0.1)
    time.sleep(1)
    with open("/proc/%d/status" % pid) as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return {"waiters": len(listed["waiters"]) * 100, "megabytes": kilobytes / 1024}


class Loris:
    """Connections that send a byte of a head now and then, and begin again when they are thrown out."""

    def __init__(self, count):
        self.sockets = [self.open() for _ in range(count)]
        self.at = self.reopened = 0

    @staticmethod
    def open():
        s = socket.create_connection(("127.0.0.1", port), timeout=5)
        s.setblocking(False)
        s.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        return s

    def step(self, count):
        for _ in range(count):
            self.at = (self.at + 1) % len(self.sockets)
            try:
                self.sockets[self.at].send(b"X")
            except OSError:
                self.sockets[self.at].close()
                self.sockets[self.at] = self.open()
                self.reopened += 1


def beside(count, seconds):
    """The loris runs in a process of its own, so that the client is not slowed down by it."""
    import os
    alone = measure(seconds)
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        loris = Loris(count)
        os.write(told, b"x")
        while os.getppid() != 1:
            loris.step(50)
            time.sleep(0.05)
        os._exit(0)
    os.read(ready, 1)
    crowded = measure(seconds)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return {"alone": alone, "beside": crowded, "ratio": crowded["p99Ms"] / alone["p99Ms"]}


if mode == "pairs":
    print(json.dumps(measure(float(sys.argv[3]))))
elif mode == "count" and len(sys.argv) > 4:
    count_together(int(sys.argv[3]), int(sys.argv[4]))
elif mode == "count":
    s = connect()
    for _ in range(int(sys.argv[3])):
        pair(s)
elif mode == "waits":
    print(json.dumps(wait_together(int(sys.argv[3]), int(sys.argv[4]))))
else:
    print(json.dumps(beside(int(sys.argv[3]), float(sys.argv[4]))))
