#!/usr/bin/env python3
"""silent_server.py - a server that does not answer, in one of several ways; prints its port and stays until it is killed.

Usage: silent_server.py mute           accepts connections, reads nothing, says nothing
       silent_server.py full           its backlog is full: the kernel drops what would connect
       silent_server.py cut PORT       passes the greeting on to the server at PORT, and cuts the connection after its answer
"""
import select
import socket
import sys
import threading
import time


def listener(backlog):
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(backlog)
    return server


def announce(server):
    print(server.getsockname()[1], flush=True)


def mute():
    server = listener(1024)
    announce(server)
    kept = []
    while True:
        kept.append(server.accept()[0])


def full():
    """Fills the backlog with connections of its own, until one is not accepted within a moment."""
    server = listener(0)
    address, kept = server.getsockname(), []
    while True:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(address)
        kept.append(client)
        if not select.select([], [client], [], 0.5)[1]:
            break
    announce(server)
    while True:
        time.sleep(60)


def cut_one(client, port):
    real = socket.create_connection(("127.0.0.1", port))
    try:
        while True:
            ready = select.select([client, real], [], [])[0]
            if client in ready:
                asked = client.recv(65536)
                if not asked:
                    return
                real.sendall(asked)
            if real in ready:
                client.sendall(real.recv(65536))
                return
    except OSError:
        return
    finally:
        client.close()
        real.close()


def cut(port):
    server = listener(1024)
    announce(server)
    while True:
        threading.Thread(target=cut_one, args=(server.accept()[0], port), daemon=True).start()


if __name__ == "__main__":
    {"mute": mute, "full": full, "cut": lambda: cut(int(sys.argv[2]))}[sys.argv[1]]()
