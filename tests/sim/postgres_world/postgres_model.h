/* postgres_model.h - the functions of 001_install.sql on the rows of one name. That the SQL does
 * the same is the matter of fault/postgres/postgres_walk.py. */
#pragma once
#include "postgres_world.h"

enum { NUMBERS_TEXT = 200 };

/* Arguments of a statement, by their numbers in postgres.c less one. */
enum {
    ARG_NAME,
    ARG_ERA,
    ARG_GUESS,
    ARG_ID,
    ARG_TTL,
    ARG_META,
    ARG_KIND,
    ARG_OWNER,
    ARG_UNITS,
    ARG_CAPACITY,
    ARG_QUEUE,
    ARG_AGAIN,
    ARG_TICKET,
    ARG_SHARED,
    ARG_BARGING,
    ARG_SESSION,
    ARG_CHANNEL,
    ARG_KEEP,
    ARG_AGE,
    ARG_PACE,
    ARGS
};
enum { RELEASE_TOKEN = 4, RELEASE_TICKET, RELEASE_SHARED, RELEASE_VERB, RELEASE_TOMBSTONE };
enum { EXTEND_ID = 2, EXTEND_TOKEN, EXTEND_TTL };
enum { CONVERT_ID = 1, CONVERT_TOKEN, CONVERT_UP };

struct statement {
    unsigned link;
    const char *name, *sql, *value[24]; /* NULL: SQL's NULL */
    int count;
};

static int64_t number_of(const struct statement *s, int argument)
{
    const char *text = s->value[argument];
    return text ? strtoll(text, NULL, 10) : 0;
}

static bool is_set(const struct statement *s, int argument)
{
    return s->value[argument] && s->value[argument][0] == 't';
}

static int64_t now_us(void)
{
    return w.now / 1000 + db.wrong_us;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static char class_of_kind(char kind)
{
    return kind == 'r' || kind == 'w' ? 'x' : kind;
}

/* ---- Rows ---- */

static struct model_hold *hold_of(const char *id)
{
    for (unsigned i = 0; i < db.rows.holds; i++)
        if (strcmp(db.rows.hold[i].id, id) == 0)
            return &db.rows.hold[i];
    return NULL;
}

static struct model_waiter *waiter_of(const char *id)
{
    for (unsigned i = 0; i < db.rows.waiters; i++)
        if (strcmp(db.rows.waiter[i].id, id) == 0)
            return &db.rows.waiter[i];
    return NULL;
}

static struct model_hold *add_hold(struct model_hold hold)
{
    if (db.rows.holds == HOLDS) {
        flaw("%d holds", HOLDS);
        db.rows.holds--;
    }
    db.rows.used += hold.units;
    db.rows.hold[db.rows.holds] = hold;
    return &db.rows.hold[db.rows.holds++];
}

static void end_hold(struct model_hold *hold)
{
    db.rows.used -= hold->units;
    *hold = db.rows.hold[--db.rows.holds];
}

static struct model_waiter *add_waiter(struct model_waiter waiter)
{
    if (db.rows.waiters == WAITERS) {
        flaw("%d places in the queue", WAITERS);
        db.rows.waiters--;
    }
    unsigned at = db.rows.waiters++;
    for (; at > 0 && db.rows.waiter[at - 1].ticket > waiter.ticket; at--)
        db.rows.waiter[at] = db.rows.waiter[at - 1];
    db.rows.waiter[at] = waiter;
    return &db.rows.waiter[at];
}

static void remove_waiter(struct model_waiter *waiter)
{
    size_t at = (size_t)(waiter - db.rows.waiter);
    memmove(waiter, waiter + 1, (--db.rows.waiters - at) * sizeof *waiter);
}

static void leave_queue(const char *id)
{
    struct model_waiter *waiter = waiter_of(id);
    if (waiter)
        remove_waiter(waiter);
}

static bool has_tombstone(const char *id, int64_t now)
{
    for (unsigned i = 0; i < db.rows.buried; i++)
        if (db.rows.tombstone[i].till > now && strcmp(db.rows.tombstone[i].id, id) == 0)
            return true;
    return false;
}

static void bury(const char *id, int64_t till)
{
    unsigned at = db.rows.buried < TOMBSTONES ? db.rows.buried++ : draw(TOMBSTONES);
    snprintf(db.rows.tombstone[at].id, sizeof db.rows.tombstone[at].id, "%s", id);
    db.rows.tombstone[at].till = till;
}

/* Ends the holds whose time is over. Returns for how many microseconds nothing may be granted. */
static int64_t lock_row(int64_t now)
{
    int64_t left = 0;
    if (db.rows.timeline != db.timeline) {
        if (db.rows.incarnation != db.timeline) {
            db.rows.incarnation = db.timeline;
            db.rows.since = now;
        }
        bool has_grace = db.loss != REPLICATES && planted != PLANT_NO_GRACE;
        left = larger(0, db.rows.since + (has_grace ? GRACE_MS * 1000 : 0) - now);
        sum.barred += left > 0;
        if (!left)
            db.rows.timeline = db.timeline;
    }
    for (unsigned i = db.rows.holds; i-- > 0;) {
        struct model_hold *hold = &db.rows.hold[i];
        hold->till = smaller(hold->till, now + hold->ttl * 1000);
        if (hold->till <= now)
            end_hold(hold);
    }
    return left;
}

/* ---- Handing off ---- */

static bool session_lives(int64_t key)
{
    for (unsigned i = 0; i < w.links; i++)
        if (!served[i].is_over && served[i].key == key)
            return true;
    return false;
}

static bool is_dead(const struct model_waiter *waiter, int64_t now)
{
    return smaller(waiter->due, now + waiter->span * 1000) <= now ||
           (waiter->session && !session_lives(waiter->session));
}

static void notify(const struct model_waiter *waiter, int64_t token, int64_t till, int64_t now);

static int64_t next_number(int64_t now)
{
    return db.rows.last = larger(db.rows.last + 1, now);
}

static void use_as(char kind, int64_t capacity)
{
    if (db.rows.used)
        return;
    db.rows.class = class_of_kind(kind);
    db.rows.capacity = capacity;
}

static void hand_off(const struct model_waiter *waiter, int64_t now)
{
    struct model_hold hold = {.kind = waiter->kind,
                              .units = waiter->units,
                              .till = larger(waiter->due, now + waiter->grace * 1000)};
    memcpy(hold.id, waiter->id, sizeof hold.id);
    hold.ttl = larger(waiter->ttl, (hold.till - now + 999) / 1000);
    hold.token = next_number(now);
    use_as(waiter->kind, waiter->capacity);
    add_hold(hold);
    notify(waiter, hold.token, hold.till, now);
    sum.handoffs++;
}

static bool fits(char kind, int64_t units)
{
    return db.rows.used == 0 || (db.rows.class == class_of_kind(kind) && db.rows.class != 'e' &&
                                 db.rows.used + units <= db.rows.capacity);
}

static void admit(int64_t now, int64_t barred)
{
    while (db.rows.waiters && !barred) {
        struct model_waiter waiter = db.rows.waiter[0];
        bool dead = is_dead(&waiter, now);
        if (!dead && !fits(waiter.kind, waiter.units))
            return;
        remove_waiter(&db.rows.waiter[0]);
        if (!dead)
            hand_off(&waiter, now);
    }
}

/* ---- acquire, release, extend, convert ---- */

static int64_t poll_after(int64_t left, int64_t place, bool notified, const int64_t pace[6])
{
    int64_t at_end = left / 1000 + pace[4] + (place - 1) * pace[5], often = pace[1] * place;
    bool is_early = (place > 1 || !notified) && at_end > often;
    return smaller(is_early ? often : at_end, pace[2]);
}

/* The array counts from 1, as in SQL. */
static void read_pace(const struct statement *s, int64_t pace[7])
{
    if (sscanf(s->value[ARG_PACE], "{%ld,%ld,%ld,%ld,%ld,%ld}", &pace[1], &pace[2], &pace[3],
               &pace[4], &pace[5], &pace[6]) != 6)
        abort();
}

static void say_held(char *text, const struct model_hold *hold, int first, int64_t now)
{
    snprintf(text, NUMBERS_TEXT, "{%d,%ld,%ld,%ld,0}", first, hold->token, hold->till - now, now);
}

static void extend_hold(struct model_hold *hold, int64_t ttl, int64_t now)
{
    hold->till = larger(hold->till, now + ttl * 1000);
    hold->ttl = larger(hold->ttl, ttl);
}

static void enqueue(const struct statement *s, int64_t left, int64_t now, char *text)
{
    int64_t pace[7], place = 1;
    const char *id = s->value[ARG_ID], *channel = s->value[ARG_CHANNEL];
    bool may_have_asked = number_of(s, ARG_GUESS) != 2 && is_set(s, ARG_AGAIN);
    struct model_waiter *waiter = may_have_asked ? waiter_of(id) : NULL;
    read_pace(s, pace);
    if (!waiter) {
        int64_t ticket = number_of(s, ARG_TICKET);
        waiter = add_waiter((struct model_waiter){.kind = s->value[ARG_KIND][0],
                                                  .ticket = ticket ? ticket : next_number(now),
                                                  .units = number_of(s, ARG_UNITS),
                                                  .capacity = number_of(s, ARG_CAPACITY),
                                                  .ttl = number_of(s, ARG_TTL),
                                                  .grace = pace[3]});
        snprintf(waiter->id, sizeof waiter->id, "%s", id);
    }
    place += waiter - db.rows.waiter;
    int64_t again = poll_after(left, place, channel, pace);
    waiter->span = again + pace[3];
    waiter->due = now + waiter->span * 1000;
    waiter->session = number_of(s, ARG_SESSION);
    snprintf(waiter->channel, sizeof waiter->channel, "%s", channel ? channel : "");
    snprintf(text, NUMBERS_TEXT, "{2,%ld,%ld,%ld,%ld,%ld,%ld,0}", left, again, now, db.rows.last,
             place, waiter->ticket);
}

static int64_t first_end(int64_t now, int64_t barred)
{
    int64_t end = INT64_MAX;
    for (unsigned i = 0; i < db.rows.holds; i++)
        end = smaller(end, db.rows.hold[i].till);
    return end == INT64_MAX ? larger(barred, 50000) : end - now;
}

/* Returns true if the commit must be on disk before its client hears of it. */
static bool acquire(const struct statement *s, char *text)
{
    int64_t now = now_us(), barred = lock_row(now);
    const char *id = s->value[ARG_ID];
    bool again = is_set(s, ARG_AGAIN), waits = is_set(s, ARG_QUEUE);
    char kind = s->value[ARG_KIND][0];
    if (has_tombstone(id, now)) {
        sum.tombstones++;
        leave_queue(id);
        admit(now, barred);
        snprintf(text, NUMBERS_TEXT, "{-1}");
        return false;
    }
    struct model_hold *hold = kind == 'e' || again ? hold_of(id) : NULL;
    struct model_waiter *waiter = again ? waiter_of(id) : NULL;
    if (number_of(s, ARG_GUESS) == 2 && db.rows.used) {
        enqueue(s, first_end(now, barred), now, text);
        return false;
    }
    if (waiter) {
        waiter->due = larger(waiter->due, now + waiter->span * 1000);
        waiter->session = number_of(s, ARG_SESSION);
    }
    admit(now, barred);
    hold = hold || waiter ? hold_of(id) : NULL;
    if (!hold && !(again && waiter_of(id)) && !db.rows.waiters && !barred &&
        fits(kind, number_of(s, ARG_UNITS))) {
        use_as(kind, number_of(s, ARG_CAPACITY));
        hold = add_hold((struct model_hold){
            .kind = kind, .units = number_of(s, ARG_UNITS), .token = next_number(now)});
        snprintf(hold->id, sizeof hold->id, "%s", id);
    }
    if (hold) {
        extend_hold(hold, number_of(s, ARG_TTL), now);
        say_held(text, hold, 1, now);
        return true;
    }
    if (barred && !db.rows.used && !waits)
        snprintf(text, NUMBERS_TEXT, "{-6,%ld}", barred);
    else if (waits)
        enqueue(s, first_end(now, barred), now, text);
    else {
        leave_queue(id);
        snprintf(text, NUMBERS_TEXT, "{0,%ld,0}", first_end(now, barred));
    }
    return false;
}

static bool release(const struct statement *s, char *text)
{
    int64_t now = now_us(), barred = lock_row(now), tombstone = number_of(s, RELEASE_TOMBSTONE);
    const char *id = s->value[ARG_ID];
    struct model_hold *hold = hold_of(id);
    bool is_held = hold != NULL;
    if (is_held && s->value[RELEASE_VERB][0] == 'l') {
        leave_queue(id);
        say_held(text, hold, 3, now);
        return false;
    }
    if (is_held)
        end_hold(hold);
    leave_queue(id);
    if (tombstone)
        bury(id, now + tombstone * 1000);
    admit(now, barred);
    snprintf(text, NUMBERS_TEXT, "{%d,%u}", is_held, db.rows.waiters);
    return false;
}

static bool extend(const struct statement *s, char *text)
{
    int64_t now = now_us(), barred = lock_row(now);
    struct model_hold *hold = hold_of(s->value[EXTEND_ID]);
    if (hold) {
        extend_hold(hold, number_of(s, EXTEND_TTL), now);
        say_held(text, hold, 1, now);
    } else {
        snprintf(text, NUMBERS_TEXT, "{0}");
    }
    admit(now, barred);
    return true;
}

static bool convert_hold(const struct statement *s, char *text)
{
    int64_t now = now_us(), barred = lock_row(now);
    bool is_up = is_set(s, CONVERT_UP);
    struct model_hold *hold = hold_of(s->value[CONVERT_ID]);
    int64_t wanted = is_up ? db.rows.capacity : 1;
    bool reads_to_client = hold && hold->token <= number_of(s, CONVERT_TOKEN);
    bool grows = hold && is_up && (hold->units < wanted || reads_to_client);
    if (!hold) {
        snprintf(text, NUMBERS_TEXT, "{0}");
    } else if (is_up && barred && planted != PLANT_UPGRADE_IN_GRACE) {
        snprintf(text, NUMBERS_TEXT, "{-6,%ld}", barred);
    } else if (grows && db.rows.used > hold->units) {
        snprintf(text, NUMBERS_TEXT, "{2}");
    } else {
        hold->token = grows ? next_number(now) : hold->token;
        hold->kind = is_up ? 'w' : 'r';
        db.rows.used += wanted - hold->units;
        hold->units = wanted;
        say_held(text, hold, 1, now);
    }
    admit(now, barred);
    return true;
}
