-- 001_install.sql - leases in PostgreSQL 13 and newer: tables and functions, version 1 of the schema.
--
-- The engine runs this file when a database has no such schema (install.c); docs/postgres.md says how an administrator runs
-- it. Before that, three words are replaced: @schema@ by the name of the schema, @unlogged@ by UNLOGGED or nothing, @memory@
-- by true or false. A memory schema writes nothing to disk: a crash of the server empties it, and then nothing is granted until
-- every lease that was forgotten has ended (setup.grace_ms).
--
-- The rules, which the Redis engine has as well:
--   The grant is state, the notification only informs. Every function that changes a lock ends with admit(). No function shortens a
--   hold or revives one. An unknown outcome leaves a tombstone. Numbers (tokens, tickets) are max(last + 1, the server's clock in
--   microseconds).
-- The rules of this engine:
--   Every change of a name locks its one row in "lock". A plain exclusive hold is stored in that row: a free lock costs two HOT
--   updates and leaves nothing for VACUUM. Every other hold has a row in "hold".
--   A transaction that grants or extends commits with the session's synchronous_commit. All other transactions commit with off: a
--   crash may undo them, which costs time and never safety, because WAL is lost from its end only.
--   A pin is an advisory lock on the name until the end of a user's transaction: fence() takes it shared, within() exclusively.
--   Every grant needs it exclusively, so data that was written under a fence is committed before anybody else holds the lock.
--   A client that waits holds an advisory lock on a random key, in the session that is notified. If that key is free, the session
--   has ended, and its waiters are passed over at once. A client that comes back gets its place again by its ticket.
--   "era" is part of the key of a row in "lock" and grows every 2048 writes; every other search begins at a number that only grows
--   (head, low). So versions that an old snapshot of another session keeps alive are not met again. Plans use plain index scans
--   only: these mark dead index entries, and a table may have been empty when its plan was made. A scan that has no index then
--   looks so costly that PostgreSQL would compile it, which takes 100 ms: so jit is off.
--
-- Times are microseconds of clock_timestamp(); ttl, span, grace, age and pace are milliseconds. kind: e exclusive, s semaphore,
-- r reader, w writer. class: e, s, x (readers and writers). meta: "flags pid host label"; flags: d detached, b not.
CREATE SCHEMA IF NOT EXISTS @schema@;
SET LOCAL search_path = @schema@;

CREATE TABLE setup (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    version  int     NOT NULL,               -- number of the last file of this folder that was run
    memory   boolean NOT NULL,               -- the tables below are UNLOGGED
    grace_ms bigint  NOT NULL DEFAULT 60000  -- time without grants after a failover, or after data was lost
);
INSERT INTO setup (version, memory) VALUES (1, @memory@);

CREATE @unlogged@ TABLE incarnation ( -- which run of the server the data belongs to
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    timeline text    NOT NULL,
    since    bigint  NOT NULL
);
INSERT INTO incarnation (timeline, since) VALUES (left(pg_walfile_name(pg_current_wal_lsn()), 8), 0);

CREATE @unlogged@ TABLE lock (
    name       text COLLATE "C" NOT NULL, -- 1 to 1200 bytes, see lock_row()
    era        int    NOT NULL DEFAULT 0,
    writes     int    NOT NULL DEFAULT 0,
    timeline   text   NOT NULL DEFAULT '', -- the grace is known to be over on this timeline
    last       bigint NOT NULL DEFAULT 0,  -- last number that was given out
    tombstones bigint NOT NULL DEFAULT 0,  -- end of the last tombstone of this name
    waiting    int    NOT NULL DEFAULT 0,  -- number of rows in waiter
    head       bigint NOT NULL DEFAULT 0,  -- no waiter has a lower ticket
    low        bigint NOT NULL DEFAULT 0,  -- no row in hold has a lower token
    class      "char" NOT NULL DEFAULT 'e', -- this and the next two: only while used > 0 and id is NULL
    capacity   int    NOT NULL DEFAULT 1,
    declared   int    NOT NULL DEFAULT 1,  -- capacity that the first holder asked for
    used       int    NOT NULL DEFAULT 0,  -- units; 0: free
    id         uuid,                       -- attempt of the plain hold; NULL: there is none; from here on its columns
    token      bigint NOT NULL DEFAULT 0,
    till       bigint NOT NULL DEFAULT 0,
    ttl        bigint NOT NULL DEFAULT 0,  -- longest time that this hold was ever given
    since      bigint NOT NULL DEFAULT 0,
    ticket     bigint NOT NULL DEFAULT 0,
    keep       int    NOT NULL DEFAULT 0,  -- number of past holds that its client wants to keep; 0: none
    age        bigint NOT NULL DEFAULT 0,  -- milliseconds for which they are kept
    meta       text,
    PRIMARY KEY (name, era)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE @unlogged@ TABLE hold (
    name   text COLLATE "C" NOT NULL,
    id     uuid   NOT NULL,
    owner  uuid,
    kind   "char" NOT NULL,
    units  int    NOT NULL, -- 0: another row of the same owner has them
    token  bigint NOT NULL,
    till   bigint NOT NULL,
    ttl    bigint NOT NULL,
    since  bigint NOT NULL,
    ticket bigint NOT NULL,
    keep   int    NOT NULL,
    age    bigint NOT NULL,
    meta   text,
    PRIMARY KEY (name, token, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE @unlogged@ TABLE waiter (
    name     text COLLATE "C" NOT NULL,
    ticket   bigint NOT NULL,
    id       uuid   NOT NULL,
    owner    uuid,
    kind     "char" NOT NULL,
    units    int    NOT NULL,
    capacity int    NOT NULL,
    ttl      bigint NOT NULL,
    due      bigint NOT NULL, -- time until which the waiter counts as alive
    span     bigint NOT NULL, -- `due` minus the time of its last request
    grace    bigint NOT NULL, -- shortest time of a handoff
    since    bigint NOT NULL,
    session  bigint NOT NULL, -- advisory key of the session that is notified; 0: none
    channel  text,            -- channel on which it is notified; NULL: it polls
    keep     int    NOT NULL,
    age      bigint NOT NULL,
    meta     text,
    PRIMARY KEY (name, ticket)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE @unlogged@ TABLE tombstone (
    id   uuid PRIMARY KEY,
    till bigint NOT NULL
);

CREATE @unlogged@ TABLE past ( -- holds that ended
    name  text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    id    uuid   NOT NULL,
    kind  "char" NOT NULL,
    units int    NOT NULL,
    ttl   bigint NOT NULL,
    since bigint NOT NULL,
    ended bigint NOT NULL,
    lost  boolean NOT NULL, -- by time or by force; false: released
    until bigint NOT NULL,  -- time when this note is dropped
    meta  text,
    PRIMARY KEY (name, token, id)
);

CREATE TYPE locked AS (r lock, barred bigint); -- the row of a name; barred: microseconds without grants

-- ---- Small functions

CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;

-- Returns true if there is no pin. PostgreSQL releases the row locks of a transaction a moment before its advisory locks, so a failure is checked
-- again for 2 ms.
CREATE FUNCTION is_unpinned(p_name text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_key bigint := hashtextextended(p_name, hashtext('@schema@'));
BEGIN
    IF pg_try_advisory_xact_lock(v_key) THEN RETURN true; END IF;
    FOR i IN 1..3 LOOP
        PERFORM pg_sleep(0.0003 * i);
        IF pg_try_advisory_xact_lock(v_key) THEN RETURN true; END IF;
    END LOOP;
    RETURN false;
END $$;

-- Allows this transaction to be not yet on disk when its client gets the reply.
CREATE FUNCTION commit_lazily() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN PERFORM set_config('synchronous_commit', 'off', true); END $$;

CREATE FUNCTION class_of(p_kind "char") RETURNS "char" LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN p_kind IN ('r', 'w') THEN 'x'::"char" ELSE p_kind END $$;

-- ---- Past holds

CREATE FUNCTION note_past(p_name text, p_token bigint, p_id uuid, p_kind "char", p_units int, p_ttl bigint, p_since bigint,
    p_ended bigint, p_lost boolean, p_keep int, p_age bigint, p_meta text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO past VALUES (p_name, p_token, p_id, p_kind, p_units, p_ttl, p_since, p_ended, p_lost, p_ended + p_age * 1000, p_meta)
        ON CONFLICT DO NOTHING;
    DELETE FROM past p WHERE p.name = p_name AND p.token <=
        (SELECT o.token FROM past o WHERE o.name = p_name ORDER BY o.token DESC OFFSET p_keep LIMIT 1);
END $$;

-- Ends the plain hold.
CREATE FUNCTION end_plain(r lock, p_ended bigint, p_lost boolean) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF r.keep > 0 THEN
        PERFORM note_past(r.name, r.token, r.id, 'e', 1, r.ttl, r.since, p_ended, p_lost, r.keep, r.age, r.meta);
    END IF;
    r.id := NULL;
    r.used := 0;
    RETURN r;
END $$;

-- Ends a hold whose row was deleted: its units pass to another row of its owner, or become free.
CREATE FUNCTION end_hold(r lock, h hold, p_ended bigint, p_lost boolean) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF h.keep > 0 THEN
        PERFORM note_past(r.name, h.token, h.id, h.kind, h.units, h.ttl, h.since, p_ended, p_lost, h.keep, h.age, h.meta);
    END IF;
    IF h.units > 0 AND h.owner IS NOT NULL THEN
        UPDATE hold SET units = h.units WHERE (name, token, id) = (SELECT x.name, x.token, x.id FROM hold x
            WHERE x.name = r.name AND x.token >= r.low AND x.owner = h.owner AND x.units = 0 ORDER BY x.till DESC LIMIT 1);
        IF FOUND THEN RETURN r; END IF;
    END IF;
    r.used := r.used - h.units;
    RETURN r;
END $$;

-- ---- The row of a name

-- Returns for how many microseconds nothing may be granted, because data may have been lost.
CREATE FUNCTION grace_left(p_now bigint, p_timeline text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_since bigint; v_grace bigint;
BEGIN
    SELECT since INTO v_since FROM incarnation WHERE timeline = p_timeline;
    IF NOT FOUND THEN -- the server was promoted or restored, or a crash emptied the table
        INSERT INTO incarnation (timeline, since) VALUES (p_timeline, p_now)
            ON CONFLICT (one) DO UPDATE SET timeline = p_timeline, since = p_now WHERE incarnation.timeline <> p_timeline;
        SELECT since INTO v_since FROM incarnation;
    END IF;
    SELECT grace_ms INTO v_grace FROM setup;
    RETURN greatest(0, v_since + v_grace * 1000 - p_now);
END $$;

-- Locks the row of a name, inserts it if p_make, and ends the holds whose time is over. r.name is NULL if there is no row.
CREATE FUNCTION lock_row(p_name text, p_make boolean, p_now bigint) RETURNS locked LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_timeline text := left(pg_walfile_name(pg_current_wal_lsn()), 8); r lock; v_barred bigint := 0; h hold; v_now bigint;
BEGIN
    LOOP
        SELECT * INTO r FROM lock WHERE lock.name = p_name ORDER BY lock.era DESC LIMIT 1 FOR UPDATE;
        EXIT WHEN FOUND OR NOT p_make;
        IF octet_length(p_name) NOT BETWEEN 1 AND 1200 THEN -- a CHECK of the table would cost each update a tenth
            RAISE EXCEPTION 'holdfast: a name has 1 to 1200 bytes' USING ERRCODE = 'check_violation';
        END IF;
        INSERT INTO lock (name) VALUES (p_name) ON CONFLICT DO NOTHING;
    END LOOP;
    IF r.name IS NULL THEN RETURN NULL; END IF;

    v_now := greatest(p_now, now_us()); -- read again: the statement may have waited for the row
    IF r.timeline <> v_timeline THEN
        v_barred := grace_left(v_now, v_timeline);
        IF v_barred = 0 THEN r.timeline := v_timeline; END IF;
    END IF;
    IF r.id IS NOT NULL THEN
        r.till := least(r.till, v_now + r.ttl * 1000); -- the clock stepped back
        IF r.till <= v_now THEN r := end_plain(r, r.till, true); END IF;
    ELSIF r.used > 0 THEN
        UPDATE hold SET till = v_now + ttl * 1000
            WHERE hold.name = p_name AND hold.token >= r.low AND hold.till > v_now + hold.ttl * 1000;
        FOR h IN DELETE FROM hold WHERE hold.name = p_name AND hold.token >= r.low AND hold.till <= v_now RETURNING * LOOP
            r := end_hold(r, h, h.till, true);
        END LOOP;
        r.low := coalesce((SELECT x.token FROM hold x WHERE x.name = p_name AND x.token >= r.low ORDER BY x.token LIMIT 1), r.last);
    END IF;
    RETURN ROW(r, v_barred)::locked;
END $$;

-- Writes the row back. Returns its era.
CREATE FUNCTION store_row(r lock) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    r.writes := r.writes + 1;
    UPDATE lock SET era = r.era + (r.writes & 2047 = 0)::int, writes = r.writes, timeline = r.timeline, last = r.last,
        tombstones = r.tombstones, waiting = r.waiting, head = r.head, low = r.low, class = r.class, capacity = r.capacity,
        declared = r.declared, used = r.used, id = r.id, token = r.token, till = r.till, ttl = r.ttl, since = r.since,
        ticket = r.ticket, keep = r.keep, age = r.age, meta = r.meta
    WHERE name = r.name AND era = r.era;
    RETURN r.era + (r.writes & 2047 = 0)::int;
END $$;

-- ---- Handing off

-- Takes a waiter out of the queue and notifies it. p_token 0: it can never be granted.
CREATE FUNCTION notify_waiter(w waiter, p_token bigint, p_till bigint, p_now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM waiter x WHERE x.name = w.name AND x.ticket = w.ticket;
    IF w.channel IS NOT NULL THEN
        PERFORM pg_notify(w.channel, w.id || ' ' || p_token || ' ' || p_till || ' ' || p_now);
    END IF;
END $$;

-- Returns true if this waiter has gone: its time is over, or the session in which it is notified has ended. Then the key of that
-- session can be locked. A session can always lock its own key, so the numbers are compared first (holdfast.session is ours).
CREATE FUNCTION is_dead(w waiter, p_now bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN least(w.due, p_now + w.span * 1000) <= p_now
        OR CASE WHEN w.session = 0 OR w.session::text = current_setting('holdfast.session', true) THEN false
            ELSE pg_try_advisory_xact_lock_shared(w.session) END;
END $$;

-- Makes the waiter a holder.
CREATE FUNCTION handoff(r lock, w waiter, p_now bigint) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_till bigint := greatest(w.due, p_now + w.grace * 1000); v_ttl bigint;
BEGIN
    v_ttl := greatest(w.ttl, (v_till - p_now + 999) / 1000);
    r.last := greatest(r.last + 1, p_now);
    IF r.used = 0 THEN
        r.class := class_of(w.kind);
        r.capacity := w.capacity;
        r.declared := w.capacity;
    END IF;
    r.used := r.used + w.units;
    IF w.kind = 'e' AND w.owner IS NULL THEN
        r.id := w.id; r.token := r.last; r.till := v_till; r.ttl := v_ttl; r.since := p_now; r.ticket := w.ticket;
        r.keep := w.keep; r.age := w.age; r.meta := w.meta;
    ELSE
        INSERT INTO hold VALUES (w.name, w.id, w.owner, w.kind, w.units, r.last, v_till, v_ttl, p_now, w.ticket, w.keep, w.age,
            w.meta);
    END IF;
    PERFORM notify_waiter(w, r.last, v_till, p_now);
    RETURN r;
END $$;

-- Makes the waiter a holder by a hold that its owner has: without units, because they would be counted twice.
CREATE FUNCTION join_hold(s waiter, p_kind "char", p_token bigint, p_now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_till bigint := greatest(s.due, p_now + s.grace * 1000);
BEGIN
    IF s.kind = 'w' AND p_kind = 'r' THEN
        PERFORM notify_waiter(s, p_token, p_now, p_now); -- a hold that is over: it asks, and gets the mismatch as its reply
    ELSE
        INSERT INTO hold VALUES (s.name, s.id, s.owner, p_kind, 0, p_token, v_till,
            greatest(s.ttl, (v_till - p_now + 999) / 1000), p_now, s.ticket, s.keep, s.age, s.meta);
        PERFORM notify_waiter(s, p_token, v_till, p_now);
    END IF;
END $$;

-- Grants all waiters of an owner together with its first one; otherwise they would block each other.
CREATE FUNCTION handoff_siblings(r lock, w waiter, p_now bigint) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
DECLARE s waiter;
BEGIN
    FOR s IN SELECT * FROM waiter x WHERE x.name = w.name AND x.ticket > w.ticket AND x.owner = w.owner ORDER BY x.ticket LIMIT 128 LOOP
        r.waiting := r.waiting - 1;
        PERFORM join_hold(s, w.kind, r.last, p_now);
    END LOOP;
    RETURN r;
END $$;

-- Grants the lock to the first waiter, and again as long as the first one fits.
CREATE FUNCTION admit(r lock, p_now bigint, p_barred bigint) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
DECLARE w waiter; h hold; v_free boolean; v_pinned boolean := true;
BEGIN
    IF r.waiting = 0 OR p_barred > 0 THEN RETURN r; END IF;
    FOR i IN 1..2000 LOOP
        EXIT WHEN r.waiting = 0;
        SELECT * INTO w FROM waiter x WHERE x.name = r.name AND x.ticket >= r.head ORDER BY x.ticket LIMIT 1;
        IF NOT FOUND THEN r.waiting := 0; EXIT; END IF;

        r.head := w.ticket;
        v_free := r.used = 0;
        EXIT WHEN NOT v_free AND r.id IS NOT NULL;
        IF is_dead(w, p_now) THEN
            DELETE FROM waiter x WHERE x.name = w.name AND x.ticket = w.ticket;
        ELSIF NOT v_free AND r.class = class_of(w.kind) AND w.units > r.capacity THEN
            PERFORM notify_waiter(w, 0, 0, p_now);
        ELSE
            h := NULL; -- a hold of the same owner: it queued in the grace, or it was passed by another attempt of its owner
            IF NOT v_free AND w.owner IS NOT NULL AND r.class = class_of(w.kind) THEN
                SELECT * INTO h FROM hold x WHERE x.name = r.name AND x.token >= r.low AND x.owner = w.owner LIMIT 1;
            END IF;
            EXIT WHEN h.id IS NULL AND NOT v_free AND (r.class <> class_of(w.kind) OR r.used + w.units > r.capacity);
            IF h.id IS NOT NULL THEN
                PERFORM join_hold(w, h.kind, h.token, p_now);
            ELSE
                IF v_pinned THEN
                    v_pinned := NOT is_unpinned(r.name);
                    EXIT WHEN v_pinned;
                END IF;
                r := handoff(r, w, p_now);
                IF w.owner IS NOT NULL THEN r := handoff_siblings(r, w, p_now); END IF;
            END IF;
        END IF;
        r.waiting := r.waiting - 1;
        r.head := w.ticket + 1;
    END LOOP;
    RETURN r;
END $$;

-- ---- acquire: a new request, the refresh of a place in the queue, the confirmation of a handoff
--
-- returns   {1, token, left, now, era}                          held for at least `left` microseconds from now
--           {0, left, era}                                      busy; left: microseconds until the first hold ends
--           {2, left, again, now, number, place, ticket, era}   queued: ask again after `again` ms; place 1 is next
--           {-1} the attempt has a tombstone  {-2, class, capacity} mismatch  {-3, capacity} too big  {-4} too many waiters
--           {-5} this owner reads, and asks to write  {-6, left} nothing is granted for so long: data may have been lost
-- p_era     as the last reply for this name said; a wrong era costs time only
-- p_guess   first request of a plain exclusive attempt: 1 the lock is probably free, 2 it is probably held and the caller waits;
--           0 in all other cases. A wrong guess costs time only
-- p_again   this attempt may have asked before; p_ticket: its place in the queue, 0: unknown; p_shared: others may have asked with
--           the same attempt
-- p_pace    first poll, longest poll, grace, margin, stagger (ms), most waiters
CREATE FUNCTION acquire(p_name text, p_era int, p_guess int, p_id uuid, p_ttl bigint, p_meta text, p_kind "char", p_owner uuid,
    p_units int, p_capacity int, p_queue boolean, p_again boolean, p_ticket bigint, p_shared boolean, p_barging boolean,
    p_session bigint, p_channel text, p_keep int, p_age bigint, p_pace bigint[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
-- PL/pgSQL prepares each of its expressions anew in every transaction. So the usual paths are one or two statements, and
-- conditions stand inside them.
DECLARE v_now bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint; v bigint[];
BEGIN
    IF p_guess = 1 THEN
        UPDATE lock SET last = greatest(last + 1, v_now), token = greatest(last + 1, v_now), id = p_id, used = 1,
            till = v_now + p_ttl * 1000, ttl = p_ttl, since = v_now, ticket = 0, keep = p_keep, age = p_age, meta = p_meta,
            writes = writes + 1, era = era + ((writes + 1) & 2047 = 0)::int
        WHERE name = p_name AND era = p_era AND used = 0 AND waiting = 0 AND tombstones <= v_now
            AND timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
        RETURNING ARRAY[pg_try_advisory_xact_lock(hashtextextended(p_name, hashtext('@schema@')))::int, token, p_ttl * 1000, v_now, era]
            INTO v;
        IF v[1] = 1 THEN RETURN v; END IF;
        IF FOUND THEN -- a pin
            IF is_unpinned(p_name) THEN v[1] := 1; RETURN v; END IF;
            UPDATE lock SET id = NULL, used = 0 WHERE name = p_name AND era = v[5];
        END IF;
    ELSIF p_guess = 2 THEN
        UPDATE lock SET last = greatest(last + 1, v_now), waiting = waiting + 1,
            head = CASE WHEN waiting = 0 THEN greatest(last + 1, v_now) ELSE head END, writes = writes + 1,
            era = era + ((writes + 1) & 2047 = 0)::int
        WHERE name = p_name AND era = p_era AND id IS NOT NULL AND id <> p_id AND waiting < p_pace[6] AND tombstones <= v_now
            AND till > v_now AND till <= v_now + ttl * 1000
            AND timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
        RETURNING ARRAY[2, till - v_now, poll_after(till - v_now, waiting, p_channel IS NOT NULL, p_pace), v_now, last, waiting,
            last, era] INTO v;
        IF FOUND THEN
            INSERT INTO waiter VALUES (p_name, v[5], p_id, NULL, 'e', 1, 1, p_ttl, v_now + (v[3] + p_pace[3]) * 1000, v[3] + p_pace[3],
                p_pace[3], v_now, p_session, p_channel, p_keep, p_age,
                CASE WHEN set_config('synchronous_commit', 'off', true) IS NULL THEN NULL ELSE p_meta END);
            RETURN v;
        END IF;
    END IF;
    RETURN acquire_slowly(p_name, p_id, p_ttl, p_meta, p_kind, p_owner, p_units, p_capacity, p_queue, p_again, p_ticket, p_shared,
        p_barging, p_session, p_channel, p_keep, p_age, p_pace);
END $$;

-- Returns after how many ms a waiter asks again.
CREATE FUNCTION poll_after(p_left bigint, p_place bigint, p_notified boolean, p_pace bigint[]) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT least(CASE WHEN (p_place > 1 OR NOT p_notified) AND p_left / 1000 + p_pace[4] + (p_place - 1) * p_pace[5] > p_pace[1] * p_place
        THEN p_pace[1] * p_place ELSE p_left / 1000 + p_pace[4] + (p_place - 1) * p_pace[5] END, p_pace[2])
$$;

CREATE FUNCTION acquire_slowly(p_name text, p_id uuid, p_ttl bigint, p_meta text, p_kind "char", p_owner uuid, p_units int,
    p_capacity int, p_queue boolean, p_again boolean, p_ticket bigint, p_shared boolean, p_barging boolean, p_session bigint,
    p_channel text, p_keep int, p_age bigint, p_pace bigint[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_now bigint; e locked; r lock; v_barred bigint; h hold; w waiter; v_sibling hold; v_left bigint; v_poll bigint; v_place int;
BEGIN
    e := lock_row(p_name, true, 0);
    r := e.r;
    v_barred := e.barred;
    v_now := now_us();
    IF r.tombstones > v_now AND EXISTS (SELECT FROM tombstone t WHERE t.id = p_id AND t.till > v_now) THEN
        r := admit(leave_queue(r, p_id, p_ticket, p_shared), v_now, v_barred);
        PERFORM store_row(r), commit_lazily();
        RETURN ARRAY[-1];
    END IF;

    -- If the attempt holds already, its hold is extended, never shortened.
    IF r.id = p_id THEN
        r.till := greatest(r.till, v_now + p_ttl * 1000);
        r.ttl := greatest(r.ttl, p_ttl);
        RETURN ARRAY[1, r.token, r.till - v_now, v_now, store_row(r)];
    END IF;
    IF p_again AND r.used > 0 AND r.id IS NULL THEN
        UPDATE hold x SET till = greatest(x.till, v_now + p_ttl * 1000), ttl = greatest(x.ttl, p_ttl)
            WHERE x.name = p_name AND x.token >= r.low AND x.id = p_id RETURNING * INTO h;
        IF FOUND THEN
            r := admit(r, v_now, v_barred);
            RETURN ARRAY[1, h.token, h.till - v_now, v_now, store_row(r)];
        END IF;
    END IF;

    -- The first in the queue that fits is granted now; that may be this attempt.
    IF p_again THEN
        w := waiter_of(p_name, p_id, p_ticket, p_shared);
        IF w.id IS NOT NULL THEN -- the request shows that it is alive, whatever its row says
            UPDATE waiter x SET due = greatest(x.due, v_now + x.span * 1000), session = p_session, channel = p_channel
                WHERE x.name = p_name AND x.ticket = w.ticket;
        END IF;
    END IF;
    r := admit(r, v_now, v_barred);
    IF w.id IS NOT NULL THEN
        IF r.id = p_id THEN
            r.till := greatest(r.till, v_now + p_ttl * 1000);
            r.ttl := greatest(r.ttl, p_ttl);
            RETURN ARRAY[1, r.token, r.till - v_now, v_now, store_row(r)];
        END IF;
        UPDATE hold x SET till = greatest(x.till, v_now + p_ttl * 1000), ttl = greatest(x.ttl, p_ttl)
            WHERE x.name = p_name AND x.token >= r.low AND x.id = p_id RETURNING * INTO h;
        IF FOUND THEN RETURN ARRAY[1, h.token, h.till - v_now, v_now, store_row(r)]; END IF;
        w := waiter_of(p_name, p_id, p_ticket, p_shared);
    END IF;

    IF r.used > 0 AND (r.class <> class_of(p_kind) OR (p_capacity <> r.capacity AND p_capacity <> r.declared)) THEN
        r := admit(leave_queue(r, p_id, p_ticket, p_shared), v_now, v_barred);
        PERFORM store_row(r), commit_lazily();
        RETURN ARRAY[-2, ascii(r.class::text), r.capacity];
    END IF;
    IF r.used > 0 AND r.class = 's' AND p_units > r.capacity THEN
        r := admit(leave_queue(r, p_id, p_ticket, p_shared), v_now, v_barred);
        PERFORM store_row(r), commit_lazily();
        RETURN ARRAY[-3, r.capacity];
    END IF;

    -- If the owner holds already, perhaps since admit() above, the request joins that hold. Not in the grace: the end of that hold
    -- may be lost, and with it a grant to somebody else.
    IF p_owner IS NOT NULL AND r.used > 0 AND r.id IS NULL THEN
        SELECT * INTO v_sibling FROM hold x WHERE x.name = p_name AND x.token >= r.low AND x.owner = p_owner LIMIT 1;
        IF FOUND AND v_barred = 0 THEN
            r := leave_queue(r, p_id, p_ticket, p_shared);
            IF p_kind = 'w' AND v_sibling.kind = 'r' THEN
                r := admit(r, v_now, v_barred);
                PERFORM store_row(r), commit_lazily();
                RETURN ARRAY[-5];
            END IF;
            INSERT INTO hold VALUES (p_name, p_id, p_owner, v_sibling.kind, 0, v_sibling.token, v_now + p_ttl * 1000, p_ttl, v_now, 0,
                p_keep, p_age, p_meta);
            r := admit(r, v_now, v_barred);
            RETURN ARRAY[1, v_sibling.token, p_ttl * 1000, v_now, store_row(r)];
        END IF;
    END IF;

    -- A newcomer is granted at once if nobody waits, or if it may pass those who do. So is a waiter that was passed over, and whose
    -- ticket makes it the first again.
    IF w.id IS NULL AND (r.waiting = 0 OR p_barging OR p_ticket BETWEEN 1 AND r.head) AND v_barred = 0
        AND (r.used = 0 OR (r.id IS NULL AND r.used + p_units <= r.capacity)) AND is_unpinned(p_name) THEN
        r.last := greatest(r.last + 1, v_now);
        IF r.used = 0 THEN
            r.class := class_of(p_kind);
            r.capacity := p_capacity;
            r.declared := p_capacity;
        END IF;
        r.used := r.used + p_units;
        IF p_kind = 'e' AND p_owner IS NULL THEN
            r.id := p_id; r.token := r.last; r.till := v_now + p_ttl * 1000; r.ttl := p_ttl; r.since := v_now; r.ticket := 0;
            r.keep := p_keep; r.age := p_age; r.meta := p_meta;
        ELSE
            INSERT INTO hold VALUES (p_name, p_id, p_owner, p_kind, p_units, r.last, v_now + p_ttl * 1000, p_ttl, v_now, 0,
                p_keep, p_age, p_meta);
        END IF;
        RETURN ARRAY[1, r.last, p_ttl * 1000, v_now, store_row(r)];
    END IF;

    IF v_barred > 0 AND (r.used = 0 OR v_sibling.id IS NOT NULL) AND NOT p_queue THEN
        PERFORM store_row(r), commit_lazily();
        RETURN ARRAY[-6, v_barred];
    END IF;
    v_left := CASE WHEN r.id IS NOT NULL THEN r.till - v_now
        WHEN r.used > 0 THEN coalesce((SELECT min(x.till) FROM hold x WHERE x.name = p_name AND x.token >= r.low) - v_now, 0)
        ELSE greatest(v_barred, 50000) END; -- free, with a pin
    PERFORM commit_lazily();
    IF NOT p_queue THEN
        IF w.id IS NOT NULL THEN r := leave_queue(r, p_id, w.ticket, false); END IF;
        RETURN ARRAY[0, v_left, store_row(r)];
    END IF;

    IF w.id IS NULL THEN
        IF r.waiting >= p_pace[6] THEN
            PERFORM store_row(r);
            RETURN ARRAY[-4];
        END IF;
        w.ticket := p_ticket; -- the place that it had before it was passed over
        IF p_ticket = 0 THEN
            r.last := greatest(r.last + 1, v_now);
            w.ticket := r.last;
        END IF;
        r.head := CASE WHEN r.waiting = 0 THEN w.ticket ELSE least(r.head, w.ticket) END;
        r.waiting := r.waiting + 1;
    END IF;
    IF w.ticket = r.last THEN
        v_place := r.waiting;
    ELSE
        SELECT count(*) + 1 INTO v_place FROM (SELECT FROM waiter x WHERE x.name = p_name AND x.ticket >= r.head
            AND x.ticket < w.ticket LIMIT 1000) ahead;
    END IF;
    v_poll := poll_after(v_left, v_place, p_channel IS NOT NULL, p_pace);
    INSERT INTO waiter AS x VALUES (p_name, w.ticket, p_id, p_owner, p_kind, p_units, p_capacity, p_ttl,
            v_now + (v_poll + p_pace[3]) * 1000, v_poll + p_pace[3], p_pace[3], v_now, p_session, p_channel, p_keep, p_age, p_meta)
        ON CONFLICT (name, ticket) DO UPDATE SET due = EXCLUDED.due, span = EXCLUDED.span, session = EXCLUDED.session,
            channel = EXCLUDED.channel WHERE x.id = p_id;
    RETURN ARRAY[2, v_left, v_poll, v_now, r.last, v_place, w.ticket, store_row(r)];
END $$;

CREATE FUNCTION waiter_of(p_name text, p_id uuid, p_ticket bigint, p_shared boolean) RETURNS waiter LANGUAGE plpgsql VOLATILE AS $$
DECLARE w waiter;
BEGIN
    IF p_ticket > 0 THEN
        SELECT * INTO w FROM waiter x WHERE x.name = p_name AND x.ticket = p_ticket AND x.id = p_id;
    END IF;
    IF w.id IS NULL AND (p_ticket = 0 OR p_shared) THEN
        SELECT * INTO w FROM waiter x WHERE x.name = p_name AND x.id = p_id ORDER BY x.ticket LIMIT 1;
    END IF;
    RETURN w;
END $$;

CREATE FUNCTION leave_queue(r lock, p_id uuid, p_ticket bigint, p_shared boolean) RETURNS lock LANGUAGE plpgsql VOLATILE AS $$
DECLARE w waiter := waiter_of(r.name, p_id, p_ticket, p_shared);
BEGIN
    IF w.id IS NOT NULL THEN
        DELETE FROM waiter x WHERE x.name = r.name AND x.ticket = w.ticket;
        r.waiting := r.waiting - 1;
    END IF;
    RETURN r;
END $$;

-- The client knows the token, unless the reply to an upgrade was lost.
CREATE FUNCTION hold_of(r lock, p_id uuid, p_token bigint) RETURNS hold LANGUAGE plpgsql VOLATILE AS $$
DECLARE h hold;
BEGIN
    SELECT * INTO h FROM hold x WHERE x.name = r.name AND x.token = p_token AND x.id = p_id;
    IF NOT FOUND THEN SELECT * INTO h FROM hold x WHERE x.name = r.name AND x.token >= r.low AND x.id = p_id; END IF;
    RETURN h;
END $$;

-- ---- release: ends a hold or a place in the queue, and hands off
--
-- returns   {1, waiting} it was held, and is released; waiting: how many still wait  {0, waiting} it was not held (any more)
--           {3, token, left, now, era} verb l, and it is held
-- p_verb    r ends both; x the same for a hold that had been lost; l leaves the queue, unless the attempt holds
-- p_guess   a plain hold whose outcome is known: 1 probably nobody waits, 2 somebody does; 0 in all other cases
-- p_tombstone  for how many ms this attempt is refused from now on; 0: there is no tombstone
CREATE FUNCTION release(p_name text, p_era int, p_guess int, p_id uuid, p_token bigint, p_ticket bigint, p_shared boolean,
    p_verb "char", p_tombstone bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint; v bigint[]; w waiter;
    e locked; r lock; v_barred bigint; h hold; v_held boolean := false;
BEGIN
    IF p_guess = 1 THEN
        UPDATE lock SET id = NULL, used = 0, writes = writes + 1, era = era + ((writes + 1) & 2047 = 0)::int
            WHERE name = p_name AND era = p_era AND id = p_id AND waiting = 0 AND till > v_now AND keep = 0
            RETURNING ARRAY[1, (set_config('synchronous_commit', 'off', true) IS NULL)::int] INTO v;
        IF FOUND THEN RETURN v; END IF; -- waiting is 0, as is the second number
    ELSIF p_guess = 2 THEN
        -- A plain hold passes to a plain waiter. If the row changed while it was waited for, nothing is updated here: the
        -- waiters that this statement sees are those of its beginning, so it must not pass over one that came since.
        UPDATE lock l SET last = greatest(last + 1, v_now), token = greatest(last + 1, v_now), id = x.id,
            till = greatest(x.due, v_now + x.grace * 1000), since = v_now, ticket = x.ticket, keep = x.keep, age = x.age,
            meta = x.meta, ttl = greatest(x.ttl, (greatest(x.due, v_now + x.grace * 1000) - v_now + 999) / 1000),
            waiting = waiting - 1, head = x.ticket + 1, writes = writes + 1, era = era + ((writes + 1) & 2047 = 0)::int
            FROM waiter x
            WHERE l.name = p_name AND l.era = p_era AND l.id = p_id AND l.waiting > 0 AND l.till > v_now AND l.keep = 0
                AND l.writes = (SELECT o.writes FROM lock o WHERE o.name = p_name AND o.era = p_era)
                AND l.timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8)
                AND x.name = p_name
                AND x.ticket = (SELECT y.ticket FROM waiter y WHERE y.name = p_name AND y.ticket >=
                    (SELECT o.head FROM lock o WHERE o.name = p_name AND o.era = p_era) ORDER BY y.ticket LIMIT 1)
                AND x.kind = 'e' AND x.owner IS NULL AND x.channel IS NOT NULL AND x.due > v_now AND x.due <= v_now + x.span * 1000
                AND CASE WHEN x.session = 0 OR x.session::text = current_setting('holdfast.session', true) THEN true
                    ELSE NOT pg_try_advisory_xact_lock_shared(x.session) END
                AND pg_try_advisory_xact_lock(hashtextextended(p_name, hashtext('@schema@')))
            RETURNING ARRAY[1, waiting, l.ticket, (set_config('synchronous_commit', 'off', true) IS NULL)::int,
                (pg_notify(x.channel, l.id || ' ' || token || ' ' || till || ' ' || v_now) IS NULL)::int] INTO v;
        IF FOUND THEN
            DELETE FROM waiter x WHERE x.name = p_name AND x.ticket = v[3];
            RETURN v;
        END IF;
    END IF;

    PERFORM set_config('synchronous_commit', 'off', true);
    e := lock_row(p_name, p_tombstone > 0, v_now);
    r := e.r;
    v_barred := e.barred;
    IF r.name IS NULL THEN RETURN ARRAY[0, 0]; END IF;
    v_now := greatest(v_now, now_us());
    IF r.id = p_id THEN
        v_held := true;
        IF p_verb = 'l' THEN
            r := leave_queue(r, p_id, p_ticket, p_shared);
            RETURN ARRAY[3, r.token, greatest(0, r.till - v_now), v_now, store_row(r)];
        END IF;
        r := end_plain(r, v_now, p_verb = 'x');
    ELSIF r.used > 0 AND r.id IS NULL THEN
        h := hold_of(r, p_id, p_token);
        v_held := h.id IS NOT NULL;
        IF v_held AND p_verb = 'l' THEN
            r := admit(leave_queue(r, p_id, p_ticket, p_shared), v_now, v_barred);
            RETURN ARRAY[3, h.token, greatest(0, h.till - v_now), v_now, store_row(r)];
        END IF;
        IF v_held THEN
            DELETE FROM hold x WHERE x.name = p_name AND x.token = h.token AND x.id = p_id;
            r := end_hold(r, h, v_now, p_verb = 'x');
        END IF;
    END IF;
    r := leave_queue(r, p_id, p_ticket, p_shared);
    IF p_tombstone > 0 THEN
        r.tombstones := greatest(r.tombstones, v_now + p_tombstone * 1000);
        DELETE FROM tombstone t WHERE t.id IN (SELECT o.id FROM tombstone o WHERE o.till < v_now LIMIT 2 FOR UPDATE SKIP LOCKED);
        INSERT INTO tombstone AS t VALUES (p_id, r.tombstones)
            ON CONFLICT (id) DO UPDATE SET till = greatest(t.till, EXCLUDED.till);
    END IF;
    r := admit(r, v_now, v_barred);
    IF v_held AND r.used = 0 AND r.waiting > 0 THEN -- a pin: the first waiter asks again, and then often, until the pin has gone
        PERFORM pg_notify(x.channel, x.id || ' ' || (r.last + 1) || ' ' || v_now || ' ' || v_now)
            FROM waiter x WHERE x.name = p_name AND x.ticket = r.head AND x.channel IS NOT NULL;
    END IF;
    PERFORM store_row(r);
    RETURN ARRAY[v_held::int, r.waiting];
END $$;

-- ---- extend: renews a hold; p_ttl 0 only checks it. {1, token, left, now, era}; {0}: not held
CREATE FUNCTION extend(p_name text, p_era int, p_id uuid, p_token bigint, p_ttl bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now bigint := (date_part('epoch', clock_timestamp()) * 1000000)::bigint; v bigint[]; e locked; r lock; h hold; v_era int;
BEGIN
    UPDATE lock SET till = greatest(least(till, v_now + ttl * 1000), v_now + p_ttl * 1000), ttl = greatest(ttl, p_ttl),
            writes = writes + 1, era = era + ((writes + 1) & 2047 = 0)::int
        WHERE name = p_name AND era = p_era AND id = p_id AND till > v_now
        RETURNING ARRAY[1, token, till - v_now, v_now, era] INTO v;
    IF FOUND THEN RETURN v; END IF;

    e := lock_row(p_name, false, v_now);
    r := e.r;
    IF r.name IS NULL THEN RETURN '{0}'; END IF;
    v_now := greatest(v_now, now_us());
    v := '{0}';
    IF r.id = p_id THEN
        r.till := greatest(r.till, v_now + p_ttl * 1000);
        r.ttl := greatest(r.ttl, p_ttl);
        v := ARRAY[1, r.token, r.till - v_now, v_now, 0];
    ELSIF r.used > 0 AND r.id IS NULL THEN
        h := hold_of(r, p_id, p_token);
        UPDATE hold x SET till = greatest(x.till, v_now + p_ttl * 1000), ttl = greatest(x.ttl, p_ttl)
            WHERE x.name = p_name AND x.token = h.token AND x.id = p_id RETURNING * INTO h;
        IF FOUND THEN v := ARRAY[1, h.token, h.till - v_now, v_now, 0]; END IF;
    END IF;
    v_era := store_row(admit(r, v_now, e.barred));
    IF v[1] = 1 THEN v[5] := v_era; END IF;
    RETURN v;
END $$;

-- ---- convert: the only reader becomes the writer, with a new token; a writer becomes a reader and keeps its token
-- {1, token, left, now, era}  {2} there are other readers  {0} not held  {-6, left} no upgrade for so long: other readers may be lost
CREATE FUNCTION convert(p_name text, p_id uuid, p_token bigint, p_up boolean)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE v_now bigint := now_us(); e locked; r lock; h hold; v_units int; v_wanted int; v_token bigint; v bigint[] := '{0}';
BEGIN
    e := lock_row(p_name, false, v_now);
    r := e.r;
    IF r.name IS NULL THEN RETURN '{0}'; END IF;
    v_now := greatest(v_now, now_us());
    h := hold_of(r, p_id, p_token);
    IF h.id IS NULL OR r.class <> 'x' OR r.id IS NOT NULL THEN
        v := '{0}';
    ELSIF p_up AND e.barred > 0 THEN
        v := ARRAY[-6, e.barred];
    ELSE
        SELECT max(x.units) INTO v_units FROM hold x WHERE x.name = p_name AND x.token = h.token AND (x.id = p_id OR x.owner = h.owner);
        v_wanted := CASE WHEN p_up THEN r.capacity ELSE 1 END;
        v_token := h.token;
        IF p_up AND v_units < v_wanted AND r.used > v_units THEN
            v := '{2}';
        ELSE
            -- A writer that asks with its own token, or a higher one, reads: a failover lost its downgrade, and perhaps later readers.
            IF p_up AND (v_units < v_wanted OR (h.owner IS NULL AND h.token <= p_token)) THEN
                r.last := greatest(r.last + 1, v_now);
                v_token := r.last;
            END IF;
            r.used := r.used - v_units + v_wanted;
            UPDATE hold x SET units = CASE WHEN x.units > 0 THEN v_wanted ELSE 0 END, token = v_token,
                kind = CASE WHEN p_up THEN 'w'::"char" ELSE 'r'::"char" END
                WHERE x.name = p_name AND x.token = h.token AND (x.id = p_id OR x.owner = h.owner);
            v := ARRAY[1, v_token, greatest(0, h.till - v_now), v_now, 0];
        END IF;
    END IF;
    r := admit(r, v_now, e.barred);
    v_wanted := store_row(r);
    IF v[1] = 1 THEN v[5] := v_wanted; END IF;
    RETURN v;
END $$;

-- Makes the plans of the usual paths, which takes 20 ms and more in a new session, before a request needs them. The name '' is
-- refused, so nothing is written.
CREATE FUNCTION warm_up() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
DECLARE v_id uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    PERFORM release('', 0, 1, v_id, 0, 0, false, 'r', 0), release('', 0, 2, v_id, 0, 0, false, 'r', 0), extend('', 0, v_id, 0, 0);
    PERFORM acquire('', 0, 2, v_id, 1, '', 'e', NULL, 1, 1, true, false, 0, false, false, 0, NULL, 0, 0, '{1,1,1,1,1,1}');
EXCEPTION WHEN check_violation THEN
    BEGIN
        PERFORM acquire('', 0, 1, v_id, 1, '', 'e', NULL, 1, 1, false, false, 0, false, false, 0, NULL, 0, 0, '{1,1,1,1,1,1}');
    EXCEPTION WHEN check_violation THEN NULL;
    END;
END $$;

-- ---- For administrators

-- Returns the number of attempts that held with that token.
CREATE FUNCTION break_hold(p_name text, p_token bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE v_now bigint := now_us(); e locked; r lock; h hold; v_broken int := 0;
BEGIN
    e := lock_row(p_name, false, v_now);
    r := e.r;
    IF r.name IS NULL THEN RETURN '{0}'; END IF;
    v_now := greatest(v_now, now_us());
    IF r.id IS NOT NULL AND r.token = p_token THEN
        r := end_plain(r, v_now, true);
        v_broken := 1;
    ELSIF r.id IS NULL THEN
        FOR h IN DELETE FROM hold x WHERE x.name = p_name AND x.token = p_token RETURNING * LOOP
            r := end_hold(r, h, v_now, true);
            v_broken := v_broken + 1;
        END LOOP;
    END IF;
    PERFORM store_row(admit(r, v_now, e.barred));
    RETURN ARRAY[v_broken];
END $$;

-- {1} done  {0} not in use  {-1} not a semaphore
CREATE FUNCTION resize(p_name text, p_capacity int)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = @schema@, pg_temp SET lock_timeout = '400ms' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE v_now bigint := now_us(); e locked; r lock; w waiter; v_done int;
BEGIN
    e := lock_row(p_name, false, v_now);
    r := e.r;
    IF r.name IS NULL THEN RETURN '{0}'; END IF;
    v_now := greatest(v_now, now_us());
    r := admit(r, v_now, e.barred);
    v_done := CASE WHEN r.used = 0 THEN 0 WHEN r.class = 's' AND r.id IS NULL THEN 1 ELSE -1 END;
    IF v_done = 1 THEN
        r.capacity := p_capacity;
        FOR w IN SELECT * FROM waiter x WHERE x.name = p_name AND x.units > p_capacity LOOP
            r.waiting := r.waiting - 1;
            PERFORM notify_waiter(w, 0, 0, v_now);
        END LOOP;
    END IF;
    PERFORM store_row(admit(r, v_now, e.barred));
    RETURN ARRAY[v_done];
END $$;

-- Holders and waiters of at most p_names names, the first of them after p_after, that begin with p_prefix; or of the one name
-- p_prefix. Attempt and owner ids are secrets and are not shown.
CREATE FUNCTION list_holds(p_prefix text, p_one boolean, p_after text, p_names int)
RETURNS TABLE (name text, role "char", kind "char", capacity int, used int, units int, depth int, place int, token bigint,
    left_us bigint, since_us bigint, ticket bigint, ttl bigint, meta text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE v_end text := p_prefix || CASE WHEN p_one THEN chr(1) ELSE chr(1114111) END; -- behind the last name
BEGIN
    RETURN QUERY WITH t AS MATERIALIZED (SELECT now_us() AS now),
    names AS MATERIALIZED (SELECT DISTINCT ON (l.name) l.* FROM lock l WHERE l.name >= greatest(p_prefix COLLATE "C", p_after COLLATE "C") AND l.name < v_end
        AND l.name <> p_after AND (l.used > 0 OR l.waiting > 0) AND (NOT p_one OR l.name = p_prefix)
        ORDER BY l.name, l.era DESC LIMIT p_names)
    SELECT l.name, 'h'::"char", 'e'::"char", 1, 1, 1, 1, 0, l.token, l.till - t.now, t.now - l.since, l.ticket, l.ttl, l.meta
        FROM names l, t WHERE l.id IS NOT NULL AND l.till > t.now
    UNION ALL
    SELECT l.name, 'h', min(h.kind::text)::"char", l.capacity, l.used, max(h.units), count(*)::int, 0, max(h.token),
        max(h.till) - min(t.now), max(t.now - h.since), min(h.ticket), max(h.ttl), min(h.meta)
        FROM names l JOIN hold h ON h.name = l.name AND l.id IS NULL, t WHERE h.till > t.now
        GROUP BY l.name, l.capacity, l.used, coalesce(h.owner, h.id)
    UNION ALL
    SELECT l.name, 'w', w.kind, CASE WHEN l.id IS NULL THEN l.capacity ELSE 1 END, l.used, w.units, 1,
        row_number() OVER (PARTITION BY l.name ORDER BY w.ticket)::int, 0, 0, t.now - w.since, w.ticket, w.ttl, w.meta
        FROM names l JOIN waiter w ON w.name = l.name, t WHERE w.due > t.now
    UNION ALL -- where the next page begins, if there is one
    SELECT max(l.name), 'n', 'e', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '' FROM names l HAVING count(*) = p_names
    ORDER BY 1, 2, 8, 12;
END $$;

-- Past holds of a name, the newest first, with those that ended by time and were not noted yet.
CREATE FUNCTION history(p_name text, p_most int)
RETURNS TABLE (token bigint, kind "char", units int, ttl bigint, lost boolean, ended_us bigint, held_us bigint, meta text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
    WITH t AS MATERIALIZED (SELECT now_us() AS now)
    SELECT p.token, p.kind, p.units, p.ttl, p.lost, t.now - p.ended, p.ended - p.since, p.meta
        FROM past p, t WHERE p.name = p_name AND p.until > t.now
    UNION ALL
    SELECT l.token, 'e', 1, l.ttl, true, t.now - l.till, l.till - l.since, l.meta
        FROM lock l, t WHERE l.name = p_name AND l.id IS NOT NULL AND l.keep > 0 AND l.till <= t.now
    UNION ALL
    SELECT h.token, h.kind, h.units, h.ttl, true, t.now - h.till, h.till - h.since, h.meta
        FROM hold h, t WHERE h.name = p_name AND h.keep > 0 AND h.till <= t.now
    ORDER BY 1 DESC LIMIT p_most
$$;

-- Deletes rows of names that nobody used for an hour, tombstones and past holds whose time is over. Clients call it now and then;
-- one session at a time does it. A name that is used again begins at the clock.
CREATE FUNCTION sweep(p_most int) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
DECLARE v_now bigint := now_us(); v_hour bigint := 3600000000; v_swept int;
BEGIN
    PERFORM commit_lazily();
    IF NOT pg_try_advisory_xact_lock(hashtextextended('sweep', hashtext('@schema@'))) THEN RETURN 0; END IF;
    DELETE FROM tombstone t WHERE t.id = ANY (ARRAY(SELECT o.id FROM tombstone o WHERE o.till < v_now LIMIT p_most FOR UPDATE SKIP LOCKED));
    DELETE FROM past p WHERE p.ctid = ANY (ARRAY(SELECT o.ctid FROM past o WHERE o.until < v_now LIMIT p_most FOR UPDATE SKIP LOCKED));
    DELETE FROM lock l WHERE l.ctid = ANY (ARRAY(SELECT y.ctid FROM lock y WHERE y.waiting = 0 AND y.tombstones < v_now
        AND (y.used = 0 OR (y.id IS NOT NULL AND y.keep = 0 AND y.till < v_now - v_hour))
        AND y.last < v_now - v_hour AND y.since < v_now - v_hour LIMIT p_most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_swept = ROW_COUNT;
    RETURN v_swept;
END $$;

-- ---- For users' own transactions

-- Succeeds if the hold with that token is good; then nobody else gets the lock before this transaction has ended. Raises 55000
-- otherwise. Only for exclusive holds and writers: several readers and permits are good at once.
CREATE FUNCTION fence(p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
DECLARE v_good boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN -- an older snapshot would show an older holder
        RAISE EXCEPTION 'holdfast: fence() needs the isolation level READ COMMITTED' USING ERRCODE = '0A000';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_name, hashtext('@schema@')));
    SELECT true INTO v_good FROM lock l WHERE l.name = p_name AND l.id IS NOT NULL AND l.token = p_token AND l.till > now_us();
    IF NOT FOUND THEN
        SELECT true INTO v_good FROM hold h
            WHERE h.name = p_name AND h.token = p_token AND h.kind IN ('e', 'w') AND h.till > now_us() LIMIT 1;
    END IF;
    IF v_good IS NOT TRUE THEN
        RAISE EXCEPTION 'holdfast: % is not held with token %', p_name, p_token USING ERRCODE = '55000';
    END IF;
END $$;

-- Holds the name until the end of this transaction, without a lease: no client, no ttl, no network. Returns false if a lease holds
-- it or somebody waits for one. Waits only for other transactions that have it.
CREATE FUNCTION within(p_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = @schema@, pg_temp SET jit = off AS $$
DECLARE v_now bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast: within() needs the isolation level READ COMMITTED' USING ERRCODE = '0A000';
    END IF;
    IF grace_left(now_us(), left(pg_walfile_name(pg_current_wal_lsn()), 8)) > 0 THEN RETURN false; END IF; -- a forgotten lease may hold it
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_name, hashtext('@schema@')));
        v_now := now_us();
        IF NOT EXISTS (SELECT FROM lock l WHERE l.name = p_name
            AND ((l.id IS NOT NULL AND l.till > v_now)
              OR (l.id IS NULL AND EXISTS (SELECT FROM hold h WHERE h.name = p_name AND h.till > v_now))
              OR (l.waiting > 0 AND EXISTS (SELECT FROM waiter w WHERE w.name = p_name AND w.due > v_now))))
        THEN RETURN true; END IF;
        RAISE SQLSTATE 'HF001'; -- gives the pin back: otherwise the next lease would wait until this transaction has ended
    EXCEPTION WHEN SQLSTATE 'HF001' THEN RETURN false;
    END;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA @schema@ FROM PUBLIC;
