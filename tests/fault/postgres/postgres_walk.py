#!/usr/bin/python3
"""postgres_walk.py - random operations on the SQL of the engine postgres:, judged after each step by invariants.

    postgres_walk.py CONNINFO [--steps N] [--seed N] [--plants]

The file that ships is installed with its clock replaced, so the functions that run here are those that run there. One session
makes every schedule the same for the same seed; interleavings of sessions are the matter of the fault tests. Now and then a
failover loses the newest changes: the tables get an older state and a new timeline. With --plants a mistake is put into the SQL,
one after the other, and the walk must find each."""
import argparse
import pathlib
import random
import re
import sys
import uuid

import psycopg2
import psycopg2.extras

SCHEMA = "holdfast_walk"
TABLES = ("lock", "hold", "waiter", "tombstone", "past", "incarnation")
GRACE_MS = 750  # no hold of a walk with failovers is longer
TIMELINE = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"
CLOCK = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
SQL = pathlib.Path(__file__).resolve().parents[3] / "src/engines/postgres/sql/001_install.sql"
PACE = [50, 500, 200, 4, 20, 100]
STEPS_A_WALK = 300

# name -> kind or class, capacity, whether its attempts have owners
NAMES = {
    "plain": ("e", 1, False),
    "permits": ("s", 4, False),
    "rw": ("x", 1 << 20, False),
    "owned": ("e", 1, True),
    "owned-permits": ("s", 3, True),
}

# What it is called, a text of the SQL, and what stands there instead.
PLANTS = [
    ("a hold is shortened by an extend", "till = greatest(least(till, v_now + ttl * 1000), v_now + p_ttl * 1000)",
     "till = v_now + p_ttl * 1000"),
    ("an extend revives a hold that is over", "AND era = p_era AND id = p_id AND till > v_now\n        RETURNING ARRAY[1, token, till",
     "AND era = p_era AND id = p_id\n        RETURNING ARRAY[1, token, till"),
    ("the guess takes a lock that is held", "AND era = p_era AND used = 0 AND waiting = 0", "AND era = p_era AND waiting = 0"),
    ("the guess frees a lock that others wait for", "AND id = p_id AND waiting = 0 AND till > v_now AND keep = 0", "AND id = p_id AND till > v_now"),
    ("the guess hands off what is not held", "AND l.era = p_era AND l.id = p_id AND l.waiting > 0 AND l.till > v_now AND l.keep = 0",
     "AND l.era = p_era AND l.waiting > 0"),
    ("the guess ignores tombstones", "AND used = 0 AND waiting = 0 AND tombstones <= v_now", "AND used = 0 AND waiting = 0"),
    ("an attempt with a tombstone is granted", "IF r.tombstones > v_now AND EXISTS", "IF false AND EXISTS"),
    ("a newcomer passes waiters", "IF w.id IS NULL AND (r.waiting = 0 OR p_barging", "IF w.id IS NULL AND (true OR p_barging"),
    ("more permits than the capacity", "AND (r.used = 0 OR (r.id IS NULL AND r.used + p_units <= r.capacity))",
     "AND (r.used = 0 OR (r.id IS NULL AND r.used + p_units <= r.capacity + 1))"),
    ("a handoff beyond the capacity", "OR r.used + w.units > r.capacity);", "OR r.used + w.units > r.capacity + 1);"),
    ("a release forgets to hand off", "    r := admit(r, v_now, v_barred);\n    IF v_held AND r.used = 0", "    IF v_held AND r.used = 0"),
    ("the units of an owner vanish with its first hold", "        IF FOUND THEN RETURN r; END IF;\n    END IF;\n    r.used := r.used - h.units;",
     "    END IF;\n    r.used := r.used - h.units;"),
    ("an owner that holds is granted units a second time", "IF NOT v_free AND w.owner IS NOT NULL AND r.class = class_of(w.kind) THEN",
     "IF false THEN"),
    ("an owner enters before the queue was served", "WHERE x.name = p_name AND x.token >= r.low AND x.owner = p_owner LIMIT 1;",
     "WHERE x.name = p_name AND x.token >= r.low AND x.owner = p_owner AND x.units > 1 LIMIT 1;"),
    ("a token twice", "    r.last := greatest(r.last + 1, p_now);\n    IF r.used = 0 THEN", "    IF r.used = 0 THEN"),
    ("a dead waiter is not counted", "            DELETE FROM waiter x WHERE x.name = w.name AND x.ticket = w.ticket;\n        ELSIF",
     "            r.waiting := r.waiting + 1; DELETE FROM waiter x WHERE x.name = w.name AND x.ticket = w.ticket;\n        ELSIF"),
    ("the head of the queue is too high", "        r.head := w.ticket + 1;\n", "        r.head := w.ticket + 400000;\n"),
    ("an upgrade beside other readers", "IF p_up AND v_units < v_wanted AND r.used > v_units THEN", "IF false THEN"),
    ("an upgrade keeps its token", "                v_token := r.last;\n", ""),
    ("leaving keeps the place", "        r.waiting := r.waiting - 1;\n    END IF;\n    RETURN r;\nEND $$;\n\n-- The client",
     "        r.waiting := r.waiting - 1;\n        INSERT INTO waiter VALUES (w.*);\n    END IF;\n    RETURN r;\nEND $$;\n\n-- The client"),
    ("expired holds are not ended", "hold.till <= v_now RETURNING * LOOP", "hold.till <= v_now - 50000 RETURNING * LOOP"),
    ("an upgrade beside readers that a failover lost", "ELSIF p_up AND e.barred > 0 THEN", "ELSIF false THEN"),
    ("an owner joins a hold of which a failover lost the end", "        IF FOUND AND v_barred = 0 THEN\n", "        IF FOUND THEN\n"),
    ("nothing is lost by a failover", "    IF r.timeline <> v_timeline THEN", "    IF false THEN"),
]


class Broken(Exception):
    """An invariant does not hold."""


def install(db, plant=None):
    """Installs the file with the walk's own clock, and perhaps one mistake."""
    text = SQL.read_text()
    if plant:
        if text.count(plant[1]) != 1:
            sys.exit("%s: its text occurs %d times in %s" % (plant[0], text.count(plant[1]), SQL.name))
        text = text.replace(plant[1], plant[2])
    assert text.count(CLOCK) >= 4
    text = text.replace(CLOCK, "current_setting('holdfast.clock')::bigint")
    text = text.replace(TIMELINE, "current_setting('holdfast.timeline')")
    text = text.replace("@schema@", SCHEMA).replace("@unlogged@", "").replace("@memory@", "false")
    with db.cursor() as c:
        c.execute("drop schema if exists %s cascade" % SCHEMA)
        c.execute("set holdfast.timeline = '0'")
        c.execute("begin; " + text + "; commit")
        c.execute("update %s.setup set grace_ms = %d" % (SCHEMA, GRACE_MS))
        for table in TABLES:
            c.execute("drop table if exists %s_copy" % table)
            c.execute("create temp table %s_copy as select * from %s.%s limit 0" % (table, SCHEMA, table))


class Walk:
    """One random walk."""

    def __init__(self, db, seed):
        self.c = db.cursor()
        self.r = random.Random(seed)
        self.now = 1_800_000_000_000_000
        self.log, self.attempts, self.tokens, self.touched = [], [], {}, None
        self.grants = self.ended = self.failovers = 0
        self.fails, self.queues, self.failed_at = seed % 2 == 0, seed % 4 == 0, 0
        self.c.execute("set search_path = %s; set plan_cache_mode = force_generic_plan" % SCHEMA)
        self.c.execute("delete from lock; delete from hold; delete from waiter; delete from tombstone; delete from past")
        self.c.execute("set holdfast.timeline = '0'; update incarnation set timeline = '0', since = 0")
        self.replicate()

    def call(self, sql, *args):
        self.c.execute("select set_config('holdfast.clock', %s, false)", (str(self.now),))
        self.c.execute("select " + sql, args)
        return self.c.fetchone()[0]

    def era(self, name):
        self.c.execute("select era from lock where name = %s order by era desc limit 1", (name,))
        row = self.c.fetchone()
        return row[0] if row else 0

    # ---- Operations

    def acquire(self, a):
        plain = a["kind"] == "e" and not a["owner"]
        guess = self.r.choice([0, 1, 2] if a["wait"] else [0, 1]) if plain and not a["again"] else 0
        era = self.era(a["name"]) if self.r.random() < .8 else 0
        v = self.call("acquire(" + ",".join(["%s"] * 20) + ")", a["name"], era, guess, a["id"], a["ttl"], "b 1 h l", a["kind"],
                      a["owner"], a["units"], a["capacity"], a["wait"], a["again"], a["ticket"], False, a["barging"], 0,
                      "walk" if a["notified"] else None, a["keep"], 60000, PACE)
        self.note("acquire", a, guess, v)
        a["again"] = True
        if v[0] == 1:
            self.granted(a, v[1], self.now + v[2])
        elif v[0] == 2:
            self.check_place(a, v)
            a["state"], a["ticket"] = "queued", v[6]
        else:
            a["state"] = "over"
        if v[0] == -1 and not a["tombstone"]:
            raise Broken("refused by a tombstone that it does not have")
        if v[0] in (1, 2) and a["tombstone"] > self.now:
            raise Broken("an attempt with a tombstone got in")

    def check_place(self, a, v):
        if a["ticket"] and v[6] != a["ticket"]:
            raise Broken("the waiter lost its ticket %d and has %d" % (a["ticket"], v[6]))

    def granted(self, a, token, until):
        if a["state"] != "held":
            self.grants += 1
            self.check_order(a)
            last = self.tokens.get(a["name"], 0)
            if a["kind"] in "ew" and (token < last or (token == last and not a["owner"])):
                raise Broken("token %d after %d" % (token, last))
            self.tokens[a["name"]] = max(last, token)
        a["state"], a["token"], a["until"] = "held", token, max(until, a["until"])

    def check_order(self, a):
        """A newcomer that may not barge must not be granted while others wait."""
        if a["ticket"] or a["barging"] or a["owner"]:
            return
        self.c.execute("select count(*) from waiter where name = %s and least(due, %s + span * 1000) > %s", (a["name"], self.now, self.now))
        if self.c.fetchone()[0]:
            raise Broken("a newcomer passed those who wait")

    def release(self, a, verb, tombstone):
        plain = a["kind"] == "e" and not a["owner"]
        guess = self.r.choice([0, 1, 2]) if plain and verb == "r" and not tombstone else 0
        v = self.call("release(%s,%s,%s,%s,%s,%s,%s,%s,%s)", a["name"], self.era(a["name"]), guess, a["id"], a["token"], a["ticket"],
                      False, verb, tombstone)
        self.note("release", a, verb, tombstone, guess, v)
        if v[0] == 3:
            self.granted(a, v[1], self.now + v[2])
            return
        if v[0] == 0 and a["state"] == "held" and a["until"] > self.now and not a["lost"]:
            raise Broken("a good hold was not there")
        a["state"] = "over"
        a["tombstone"] = max(a["tombstone"], self.now + tombstone * 1000 if tombstone else 0)
        if tombstone and self.r.random() < .5: # a late request of the same attempt
            self.judge()
            self.acquire(dict(a, again=self.r.random() < .5, ticket=0, state="new"))

    def extend(self, a):
        ttl = self.r.choice([0, a["ttl"], a["ttl"] * 2])
        v = self.call("extend(%s,%s,%s,%s,%s)", a["name"], self.era(a["name"]), a["id"], a["token"], ttl)
        self.note("extend", a, ttl, v)
        if v[0] == 1 and v[1] < a["token"]: # a failover lost its upgrade; the client does not believe this reply
            return
        if v[0] == 1:
            if self.now + v[2] < a["until"] and not a["lost"]:
                raise Broken("a hold was shortened")
            a["until"], a["token"] = max(a["until"], self.now + v[2]), v[1]
        elif a["until"] > self.now and not a["lost"]:
            raise Broken("a good hold was not there")
        else:
            a["state"] = "over"

    def revive(self, a):
        """Extends a hold that is over."""
        v = self.call("extend(%s,%s,%s,%s,%s)", a["name"], self.era(a["name"]), a["id"], a["token"], a["ttl"])
        self.note("extend of what is over", a, v)
        if v[0] == 1:
            raise Broken("a hold was revived")

    def release_late(self, a):
        """Releases a hold that is over."""
        guess = self.r.choice([1, 2]) if a["kind"] == "e" and not a["owner"] else 0
        v = self.call("release(%s,%s,%s,%s,%s,0,false,'r',0)", a["name"], self.era(a["name"]), guess, a["id"], a["token"])
        self.note("release of what is over", a, guess, v)
        if v[0] == 1:
            raise Broken("a hold that was over has been released")

    def convert(self, a):
        up = self.r.random() < .6
        v = self.call("convert(%s,%s,%s,%s)", a["name"], a["id"], a["token"], up)
        self.note("convert", a, up, v)
        if v[0] == 0 and a["until"] > self.now and not a["lost"]:
            raise Broken("a good hold was not there")
        if v[0] != 1:
            return
        if up and a["kind"] == "r" and v[1] <= (a["token"] if a["owner"] else self.tokens.get(a["name"], 0)):
            raise Broken("an upgrade kept its token")
        for b in self.believed(a["name"]):
            if b is a or (a["owner"] and b["owner"] == a["owner"]):
                b["kind"], b["token"] = "w" if up else "r", v[1]
        self.tokens[a["name"]] = max(self.tokens.get(a["name"], 0), v[1])

    def break_hold(self, a):
        v = self.call("break_hold(%s,%s)", a["name"], a["token"])
        self.note("break", a, v)
        for b in self.attempts:
            if b["name"] == a["name"] and b["token"] == a["token"] and b["state"] == "held":
                b["state"] = "over"

    # ---- Failovers

    def replicate(self):
        """This state of the tables is the newest one that the standby has."""
        self.c.execute(";".join("delete from {0}_copy; insert into {0}_copy select * from {0}".format(table) for table in TABLES))

    def fail_over(self):
        """The standby becomes the primary. What holders know of their holds may be newer than what it knows."""
        self.c.execute(";".join("delete from {0}; insert into {0} select * from {0}_copy".format(table) for table in TABLES))
        self.failovers += 1
        self.failed_at = self.now
        self.c.execute("set holdfast.timeline = '%d'" % self.failovers)
        self.c.execute("select id, token, till, 'e' from lock where id is not null union all select id, token, till, kind from hold")
        known = {row[0]: row[1:] for row in self.c.fetchall()}
        for a in self.attempts:
            a["tombstone"] = 0
            if a["state"] == "held" and known.get(a["id"]) != (a["token"], a["until"], a["kind"]):
                a["lost"] = True
        self.log.append(("failover",))
        self.touched = None

    def note(self, what, a, *more):
        self.log.append((what, a["n"], a["name"], a["kind"], a["units"]) + more)
        self.touched = a["name"]

    # ---- Steps

    def newcomer(self, sibling=None):
        r, name = self.r, self.r.choice(list(NAMES) + ["rw", "rw", "owned"] * self.fails)
        name = sibling["name"] if sibling else name
        kind, capacity, owned = NAMES[name]
        kind = r.choice("rrw") if kind == "x" else kind
        has_owner = owned or (kind in "rw" and r.random() < .3)
        a = dict(n=len(self.attempts), id=uuid.UUID(int=r.getrandbits(128)), name=name, kind=kind, capacity=capacity,
                 owner=sibling["owner"] if sibling else uuid.UUID(int=r.randrange(7, 10)) if has_owner else None,
                 units={"w": capacity, "s": r.randrange(1, capacity + 1)}.get(kind, 1), ttl=r.choice([100, 300, 300 if self.fails else 1000]),
                 wait=r.random() < .75, again=False, ticket=0, barging=r.random() < .1, notified=r.random() < .5, state="new",
                 token=0, until=0, tombstone=0, lost=False, keep=r.choice([0, 0, 3]))
        self.attempts.append(a)
        return a

    def step(self):
        r = self.r
        self.now += r.randrange(1, r.choice([50, 2000, 60000, 300000]))
        self.forget_ended()
        if self.fails and r.random() < .06:
            self.replicate()
        if self.fails and r.random() < .02:
            self.fail_over()
        if self.queues and r.random() < .02:
            self.queue_beside_own_hold()
        live = [a for a in self.attempts if a["state"] in ("queued", "held")]
        what = r.random()
        if what < .35 or not live:
            self.acquire(self.newcomer())
        else:
            self.go_on(r.choice(live), what)
        if r.random() < .02:
            self.call("resize(%s,%s)", "permits", r.randrange(1, 7))
            self.log.append(("resize",))
            self.touched = "permits"
        held = [a for a in live if a["state"] == "held"]
        if r.random() < .02 and held:
            self.break_hold(r.choice(held))
        over = [a for a in self.attempts[-20:] if a["state"] == "over" and 0 < a["until"] <= self.now]
        if r.random() < .1 and over:
            self.revive(r.choice(over))
        plain = [a for a in self.attempts[-60:] if a["state"] == "over" and a["name"] == "plain" and 0 < a["until"] <= self.now]
        if r.random() < .2 and plain:
            r.choice([self.revive, self.release_late])(r.choice(plain))
        self.judge()

    def go_on(self, a, what):
        r = self.r
        if a["state"] == "queued":
            if r.random() < .7:
                self.acquire(a)
            else:
                self.release(a, r.choice("lr"), r.choice([0, 0, 300]))
        elif self.fails and self.now < self.failed_at + 300000 and a["kind"] in "rw" and r.random() < .6:
            self.convert(a)
        elif what < .75:
            self.release(a, "r", r.choice([0] * 9 + [300]))
        elif what < .9 or a["kind"] not in "rw":
            self.extend(a)
        else:
            self.convert(a)

    def queue_beside_own_hold(self):
        """A failover that loses nothing: an owner keeps its hold through the grace, and its other attempts queue until the end."""
        held = [a for a in self.attempts if a["state"] == "held" and a["owner"]]
        if not held:
            return
        self.replicate()
        self.fail_over()
        a, more = self.r.choice(held), []
        while self.now < self.failed_at + (GRACE_MS + 50) * 1000 and a["state"] == "held":
            self.now += self.r.randrange(1, 60000)
            self.forget_ended()
            more = [b for b in more if b["state"] == "queued"] or [self.newcomer(a)]
            for b in [a] * (a["state"] == "held") + more:
                self.acquire(b)
                self.judge()

    def forget_ended(self):
        for a in self.attempts:
            if a["state"] == "held" and a["until"] <= self.now:
                a["state"] = "over"
                self.ended += 1

    # ---- Invariants

    def believed(self, name):
        return [a for a in self.attempts if a["name"] == name and a["state"] == "held"]

    def judge(self):
        self.c.execute("select name, class, capacity, used, id, till, waiting, head, low, timeline from lock")
        for row in self.c.fetchall():
            self.judge_name(*row)

    def judge_name(self, name, cls, capacity, used, plain, till, waiting, head, low, timeline):
        c, now = self.c, self.now
        c.execute("select units, token, till, owner, kind, id from hold where name = %s", (name,))
        holds = c.fetchall()
        c.execute("select ticket, units, due, kind, span from waiter where name = %s order by ticket", (name,))
        queue = c.fetchall()
        if plain and holds:
            raise Broken("%s: a plain hold beside others" % name)
        if used != (1 if plain else sum(h[0] for h in holds)):
            raise Broken("%s: %d units are used, the holds are %s" % (name, used, holds))
        if waiting != len(queue):
            raise Broken("%s: %d wait, and there are %d rows" % (name, waiting, len(queue)))
        if queue and queue[0][0] < head:
            raise Broken("%s: a waiter before the head of the queue" % name)
        if any(h[1] < low for h in holds):
            raise Broken("%s: a hold below low" % name)
        self.judge_holds(name, cls, capacity, holds)
        self.judge_belief(name)
        is_barred = timeline != str(self.failovers)
        if self.touched == name and not is_barred:
            self.judge_queue(name, cls, capacity, used, plain, till, holds, queue)

    def judge_holds(self, name, cls, capacity, holds):
        owners = {}
        for h in holds:
            if h[3]:
                owners.setdefault(h[3], []).append(h[0])
        if any(sum(1 for u in units if u) != 1 for units in owners.values()):
            raise Broken("%s: units of an owner not exactly once: %s" % (name, owners))
        good = [h for h in holds if h[2] > self.now]
        holders = set(h[3] or h[5] for h in good)
        if len(holders) > 1 and (cls == "e" or any(h[4] == "w" for h in good)):
            raise Broken("%s: two holders" % name)

    def judge_belief(self, name):
        held = self.believed(name)
        alone = [a for a in held if a["kind"] in "ew"]
        if alone and len(set(a["owner"] or a["n"] for a in held)) > 1:
            raise Broken("%s: two believe: %s" % (name, [(a["n"], a["kind"], a["until"] - self.now) for a in held]))
        if NAMES[name][0] == "s" and not any(line[0] == "resize" for line in self.log):
            units = {a["owner"] or a["n"]: 0 for a in held}
            for a in held:
                units[a["owner"] or a["n"]] = max(units[a["owner"] or a["n"]], a["units"] if not a["owner"] else 1)
            if sum(units.values()) > NAMES[name][1]:
                raise Broken("%s: %s units are believed" % (name, units))

    def judge_queue(self, name, cls, capacity, used, plain, till, holds, queue):
        """Nobody who is first, lives and fits is left waiting by the operation that ended just now."""
        if any(h[2] <= self.now for h in holds) or (plain and till <= self.now):
            return
        live = [q for q in queue if min(q[2], self.now + q[4] * 1000) > self.now]
        if not live or live[0] != queue[0]:
            return
        first = live[0]
        is_class = cls == ("x" if first[3] in "rw" else first[3])
        if used == 0 or (not plain and is_class and used + first[1] <= capacity):
            raise Broken("%s: the first in the queue fits and waits: %s, used %d of %d" % (name, first, used, capacity))


def walk(db, steps, seed):
    """Returns the numbers of grants and of holds that ended by time, or raises Broken with a story."""
    grants = ended = done = 0
    while done < steps:
        w = Walk(db, seed)
        try:
            for _ in range(STEPS_A_WALK):
                w.step()
        except Broken as broken:
            broken.story = "seed %d: %s\n%s" % (seed, broken, "\n".join("    %s" % (line,) for line in w.log[-14:]))
            raise
        except psycopg2.Error as error:
            broken = Broken("an error of the server: %s" % error)
            broken.story = "seed %d: %s\n%s" % (seed, broken, "\n".join("    %s" % (line,) for line in w.log[-14:]))
            raise broken from error
        done += STEPS_A_WALK
        seed += 1
        grants, ended = grants + w.grants, ended + w.ended
    return grants, ended


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("conninfo")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plants", action="store_true")
    options = parser.parse_args()
    psycopg2.extras.register_uuid()
    db = psycopg2.connect(options.conninfo)
    db.autocommit = True
    failed = 0
    rows = PLANTS if options.plants else [None]
    print("1..%d" % len(rows))
    for number, plant in enumerate(rows, 1):
        install(db, plant)
        try:
            grants, ended = walk(db, options.steps, options.seed)
            found = None
        except Broken as broken:
            found = broken
            db.rollback()
        good = bool(found) == bool(plant)
        failed += not good
        if plant:
            what = "%s: %s" % (plant[0], re.sub(r"\s+", " ", str(found))[:100] if found else "not found")
        else:
            what = "%d steps with %d grants, %d holds ended by time" % (options.steps, grants, ended) if not found else found.story
        print("%sok %d - %s" % ("" if good else "not ", number, what.replace("\n", "\n# ")))
        sys.stdout.flush()
    with db.cursor() as c:
        c.execute("drop schema if exists %s cascade" % SCHEMA)
    sys.exit(1 if failed else 0)


main()
