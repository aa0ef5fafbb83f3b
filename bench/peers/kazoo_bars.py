#!/usr/bin/env python3
"""kazoo_bars.py HOSTS SECONDS - cycles of kazoo's lock, for bench/zookeeper."""
import logging
import sys
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
client = KazooClient(hosts=sys.argv[1])
client.start()
lock = client.Lock('/kazoo/cycle', 'bars')
for _ in range(300):
    lock.acquire()
    lock.release()
begin = time.perf_counter()
cycles = 0
while time.perf_counter() - begin < float(sys.argv[2]):
    lock.acquire()
    lock.release()
    cycles += 1
print('kazoo cycle_us=%.1f' % ((time.perf_counter() - begin) * 1e6 / cycles))
client.stop()
