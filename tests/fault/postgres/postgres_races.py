#!/usr/bin/python3
"""postgres_races.py - every pair of operations on one lock, where the second waits for the first one's transaction.

    postgres_races.py CONNINFO

A statement of PostgreSQL that waits for a row goes on with the new row, but with the snapshot of its beginning for all other rows.
So each pair runs in two sessions: the first operation stays uncommitted until the second one waits for it. Then the queue must be
whole, and all that wait must be granted the lock in the order of their tickets."""
import pathlib
import sys
import threading
import time
import uuid

import psycopg2
import psycopg2.extras

SCHEMA = "holdfast_races"
SQL = pathlib.Path(__file__).resolve().parents[3] / "src/engines/postgres/sql/001_install.sql"
PACE = [5000, 20000, 20000, 4, 20, 100]
TTL = 60000
KEY = 4711  # advisory key of the session that lives for all waiters

psycopg2.extras.register_uuid()
conninfo = sys.argv[1]


def connect():
    db = psycopg2.connect(conninfo)
    db.autocommit = True
    return db


def acquire(db, name, who, guess=0, again=False, ticket=0, queue=True):
    with db.cursor() as c:
        c.execute(f"SELECT {SCHEMA}.acquire(%s,0,%s,%s,%s,'b 1 host ','e',NULL,1,1,%s,%s,%s,false,false,%s,'races',0,0,%s)",
                  (name, guess, who, TTL, queue, again, ticket, KEY if queue else 0, PACE))
        return c.fetchone()[0]


def release(db, name, who, guess=0, ticket=0, verb="r", tombstone=0):
    with db.cursor() as c:
        c.execute(f"SELECT token FROM {SCHEMA}.lock WHERE name = %s AND id = %s", (name, who))
        row = c.fetchone()
        c.execute(f"SELECT {SCHEMA}.release(%s,0,%s,%s,%s,%s,false,%s,%s)",
                  (name, guess, who, row[0] if row else 0, ticket, verb, tombstone))
        return c.fetchone()[0]


def extend(db, name, who):
    with db.cursor() as c:
        c.execute(f"SELECT {SCHEMA}.extend(%s,0,%s,0,%s)", (name, who, TTL))
        return c.fetchone()[0]


class Scene:
    """A lock with a holder and three waiters, all of them alive."""

    def __init__(self, db, name):
        self.name, self.holder = name, uuid.uuid4()
        acquire(db, name, self.holder, queue=False)
        self.waiter, self.ticket = [], []
        for _ in range(3):
            self.waiter.append(uuid.uuid4())
            self.ticket.append(acquire(db, name, self.waiter[-1])[6])
            time.sleep(0.001)  # so that there is a ticket between two others
        self.early, self.late = uuid.uuid4(), uuid.uuid4()


OPERATIONS = {
    "a waiter comes back with an early ticket": lambda db, s: acquire(db, s.name, s.early, again=True, ticket=s.ticket[0] - 500),
    "a waiter comes back with a ticket in the middle": lambda db, s: acquire(db, s.name, s.late, again=True, ticket=s.ticket[1] - 500),
    "a newcomer waits, as it guessed": lambda db, s: acquire(db, s.name, uuid.uuid4(), guess=2),
    "a newcomer waits": lambda db, s: acquire(db, s.name, uuid.uuid4()),
    "a newcomer guesses that the lock is free": lambda db, s: acquire(db, s.name, uuid.uuid4(), guess=1, queue=False),
    "the first waiter asks again": lambda db, s: acquire(db, s.name, s.waiter[0], again=True, ticket=s.ticket[0]),
    "the first waiter leaves": lambda db, s: release(db, s.name, s.waiter[0], ticket=s.ticket[0]),
    "the second waiter leaves": lambda db, s: release(db, s.name, s.waiter[1], ticket=s.ticket[1], verb="l"),
    "the holder releases, and guesses that others wait": lambda db, s: release(db, s.name, s.holder, guess=2),
    "the holder releases, and guesses that nobody waits": lambda db, s: release(db, s.name, s.holder, guess=1),
    "the holder releases": lambda db, s: release(db, s.name, s.holder),
    "the holder releases with a tombstone": lambda db, s: release(db, s.name, s.holder, tombstone=1000),
    "the holder extends": lambda db, s: extend(db, s.name, s.holder),
}


def row_of(db, name):
    with db.cursor() as c:
        c.execute(f"SELECT id, used, waiting, head FROM {SCHEMA}.lock WHERE name = %s", (name,))
        lock = c.fetchone()
        c.execute(f"SELECT ticket, id FROM {SCHEMA}.waiter WHERE name = %s ORDER BY ticket", (name,))
        return lock, c.fetchall()


def judge(db, scene):
    """Returns what is wrong; an empty text: nothing."""
    (holder, used, waiting, head), queue = row_of(db, scene.name)
    if waiting != len(queue):
        return "%d wait, and the lock counts %d" % (len(queue), waiting)
    if queue and queue[0][0] < head:
        return "the first waiter has a ticket below the head of the queue"
    if used != (holder is not None):
        return "%d units are used, and the holder is %s" % (used, holder)
    if queue and not used:
        return "the lock is free, and %d wait for it" % len(queue)
    if holder in [who for _, who in queue]:
        return "the holder waits, too"
    return ""


def drain(db, scene):
    """Releases what is held until nobody waits: each time the first in the queue must be the next holder."""
    for _ in range(20):
        (holder, _, _, _), queue = row_of(db, scene.name)
        if holder is None:
            return "%d are left in the queue" % len(queue) if queue else ""
        release(db, scene.name, holder, guess=2)
        next_holder = row_of(db, scene.name)[0][0]
        if queue and next_holder != queue[0][1]:
            return "the next holder is not the first in the queue"
    return "the queue does not end"


def await_block(watcher, pid):
    """Returns whether the session waits for a lock. One that does not wait is done soon."""
    for _ in range(100):
        with watcher.cursor() as c:
            c.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", (pid,))
            if c.fetchone()[0]:
                return True
        time.sleep(0.001)
    return False


def race(sessions, scene, first, second):
    """Returns what is wrong, and whether the second operation waited for the first."""
    one, two, watcher = sessions
    failed = []

    def run():
        try:
            OPERATIONS[second](two, scene)
        except psycopg2.Error as error:
            failed.append(str(error).strip())

    one.autocommit = False
    OPERATIONS[first](one, scene)
    thread = threading.Thread(target=run)
    thread.start()
    waited = await_block(watcher, two.info.backend_pid)
    one.commit()
    one.autocommit = True
    thread.join()
    return (failed[0] if failed else "") or judge(watcher, scene) or drain(watcher, scene), waited


def main():
    sessions = [connect() for _ in range(3)]
    alive = connect()
    with alive.cursor() as c:
        c.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        text = SQL.read_text().replace("@schema@", SCHEMA).replace("@unlogged@", "UNLOGGED").replace("@memory@", "true")
        alive.autocommit = False
        c.execute(text)
        c.execute(f"UPDATE {SCHEMA}.incarnation SET since = 0")
        alive.commit()
        alive.autocommit = True
        c.execute("SELECT pg_advisory_lock(%s)", (KEY,))

    number, failures, waits = 0, 0, 0
    print("1..%d" % (len(OPERATIONS) + 1))
    for first in OPERATIONS:
        wrong = []
        for second in OPERATIONS:
            scene = Scene(sessions[2], "race %d" % number)
            number += 1
            what, waited = race(sessions, scene, first, second)
            waits += waited
            if what:
                wrong.append("#   then %s: %s" % (second, what))
        failures += bool(wrong)
        print("%s - %s, and each other operation waits for that" % ("not ok" if wrong else "ok", first))
        print("\n".join(wrong)) if wrong else None
    enough = waits > number // 2
    print("%s - in most of the pairs one operation waited for the other" % ("ok" if enough else "not ok"))
    print("# %d pairs, in %d of them the second waited" % (number, waits))
    return 1 if failures or not enough else 0


sys.exit(main())
