#!/usr/bin/env python3
"""zookeeper_pinger.py PORT FILE - a session that trusts its pings: writes the time of the last answered ping to FILE.

It is the control of zookeeper_cutoff.sh: a client that believes in its session believes as long as these pings are answered.
"""
import os
import socket
import struct
import sys
import time


def frame(data):
    return struct.pack('>i', len(data)) + data


def read(sock, count):
    data = b''
    while len(data) < count:
        try:
            part = sock.recv(count - len(data))
        except ConnectionResetError:
            part = b''
        if not part:
            sys.exit(0)
        data += part
    return data


def packet(sock):
    return read(sock, struct.unpack('>i', read(sock, 4))[0])


sock = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
sock.sendall(frame(struct.pack('>iqiqi', 0, 0, 3000, 0, 16) + bytes(16) + b'\0'))
packet(sock)
while True:
    sock.sendall(frame(struct.pack('>ii', -2, 11)))
    if struct.unpack('>i', packet(sock)[:4])[0] == -2:
        with open(sys.argv[2] + '.new', 'w') as out:
            out.write('%d\n' % (time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))
        os.rename(sys.argv[2] + '.new', sys.argv[2])
    time.sleep(0.05)
