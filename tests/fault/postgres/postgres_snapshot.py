#!/usr/bin/python3
"""postgres_snapshot.py - what cycles of one lock cost the server while another session keeps an old snapshot.

    postgres_snapshot.py CONNINFO CYCLES

The cost is the processor time of the session's own server process, which does not depend on what else the machine does."""
import os
import sys

import psycopg2

ID = "00000000-0000-0000-0000-000000000001"
PARTS = 10
ACQUIRE = ("prepare a(int) as select holdfast.acquire('busy',$1,1,'%s',30000,'b 1 h l','e',null,1,1,false,false,0,false,false,0,null,"
           "0,0,'{500,5000,2000,4,20,100000}')" % ID)
RELEASE = "prepare r(int) as select holdfast.release('busy',$1,1,'%s',0,0,false,'r',0)" % ID


def spent(pid):
    """Seconds of processor time of a process."""
    fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cycle(c, era):
    c.execute("execute a(%d)" % era)
    held = c.fetchone()[0]
    c.execute("execute r(%d)" % held[4])
    if held[0] != 1 or c.fetchone()[0][0] != 1:
        sys.exit("the lock is not free")
    return held[4]


def main():
    worker, keeper = psycopg2.connect(sys.argv[1]), psycopg2.connect(sys.argv[1])
    worker.autocommit = True
    c, k = worker.cursor(), keeper.cursor()
    c.execute(ACQUIRE)
    c.execute(RELEASE)
    era, costs = cycle(c, 0), []
    for _ in range(500): # plans and caches
        era = cycle(c, era)
    k.execute("set transaction isolation level repeatable read")
    k.execute("select count(*) from holdfast.lock")
    part = int(sys.argv[2]) // PARTS
    for number in range(PARTS):
        before = spent(worker.info.backend_pid)
        for _ in range(part):
            era = cycle(c, era)
        costs.append((spent(worker.info.backend_pid) - before) / part * 1e6)
        print("after %6d cycles: %4.0f us of the server each" % ((number + 1) * part, costs[-1]))
    c.execute("select era, pg_relation_size('holdfast.lock') from holdfast.lock where name = 'busy' order by era desc limit 1")
    print("era and size of the table: %s" % (c.fetchone(),))
    print("the rate at the end is %d %% of that at the beginning" % (100 * min(costs[:2]) / min(costs[-2:])))


main()
