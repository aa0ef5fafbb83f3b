#!/usr/bin/env python3
# load.py - acquire and release over keep-alive connections, alone and beside slow-loris connections. Prints JSON.
# Usage: load.py pairs PORT SECONDS | loris PORT CONNECTIONS SECONDS
import http.client
import json
import socket
import sys
import time

mode, port = sys.argv[1], int(sys.argv[2])


def pair(connection, name, body='{"ttlMs":20000}'):
    connection.request("POST", "/v1/locks/%s/leases" % name, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    lease = json.loads(answer.read())
    if answer.status != 201:
        raise SystemExit("acquire: %d %r" % (answer.status, lease))
    connection.request("DELETE", "/v1/leases/" + lease["leaseId"])
    answer = connection.getresponse()
    answer.read()
    if answer.status != 204:
        raise SystemExit("release: %d" % answer.status)


def measure(seconds):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took, end = [], time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        pair(connection, "load")
        took.append(time.monotonic() - began)
    took.sort()
    return {"perSecond": len(took) / seconds, "p50Ms": took[len(took) // 2] * 1000, "p99Ms": took[len(took) * 99 // 100] * 1000}


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
else:
    print(json.dumps(beside(int(sys.argv[3]), float(sys.argv[4]))))
