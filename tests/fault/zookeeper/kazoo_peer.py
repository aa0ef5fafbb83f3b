#!/usr/bin/env python3
"""kazoo_peer.py PORT PATH FILE holder|next - kazoo's lock beside ours, for zookeeper_cutoff.sh.

The holder writes the time to FILE for as long as kazoo tells it that it is connected, which is what its manual says to
look at. The next one writes the time of its grant.
"""
import logging
import os
import sys
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)


def write_time(file):
    with open(file + '.new', 'w') as out:
        out.write('%d\n' % (time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))
    os.rename(file + '.new', file)


port, path, file, role = sys.argv[1:]
client = KazooClient(hosts='127.0.0.1:' + port, timeout=2)
client.start()
client.Lock(path, role).acquire()
write_time(file)
while role == 'holder':
    if client.connected:
        write_time(file)
    time.sleep(0.005)
client.stop()
