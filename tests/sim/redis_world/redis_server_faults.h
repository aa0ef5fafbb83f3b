/* redis_server_faults.h - what happens to the server and inside it: its faults, other programs, and
 * a look at the one lock after every script that ran, which the judge is shown. */
#pragma once
#include "client_driver.h"

#define LOCK "lock:L"

_Static_assert((int)H_SEEN >= (int)MAX_ATTEMPTS, "a sight has room for all");

/* ---- A look inside ---- */

static int find_attempt(const char *id, size_t len)
{
    for (unsigned i = w.attempts; len >= REDIS_ID_TEXT && i-- > 0;)
        if (memcmp(w.attempt[i].id, id, REDIS_ID_TEXT) == 0)
            return (int)i;
    return -1;
}

/* The n-th word, from 0, of a record, as a number. */
static int64_t word_at(const char *text, size_t len, unsigned n)
{
    int64_t value = 0;
    size_t i = 0;
    for (; n && i < len; i++)
        n -= text[i] == ' ';
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
        value = value * 10 + (text[i] - '0');
    return value;
}

/* A SET of one that needs no token may come when that one has long given up. Its tombstone says so
 * to whoever asks next: nobody holds it. */
static bool is_buried(const char *id)
{
    struct model_key waiters;
    bool has = model_look(model, "{" LOCK "}:w", sizeof "{" LOCK "}:w" - 1, &waiters);
    for (uint32_t i = 0; has && i < waiters.items; i++) {
        struct model_item stone = model_look_item(model, &waiters, i);
        if (stone.name_len == REDIS_ID_TEXT + 1 && stone.name[0] == '!' &&
            memcmp(stone.name + 1, id, REDIS_ID_TEXT) == 0)
            return word_at(stone.value, stone.value_len, 0) > server_us();
    }
    return false;
}

static void look_at_plain(struct history_sight *s, const struct model_key *key)
{
    struct model_item value = model_look_item(model, key, 0);
    int id = find_attempt(value.name, value.name_len);
    if (id >= 0 && w.plain && is_buried(value.name)) {
        s->there = false;
        return;
    }
    s->plain = true;
    s->foreign = id < 0;
    s->capacity = s->used = 1;
    s->hold[s->holds++] = (struct seen_hold){
        .attempt = id,
        .token = (uint64_t)word_at(value.name, value.name_len, 1),
        .units = 1,
        .end_us = key->left_ms < 0 ? INT64_MAX : server_us() + key->left_ms * 1000,
        .arrival = id < 0 ? 0 : (double)word_at(value.name, value.name_len, 3),
    };
}

/* A release that was refused half-way leaves the record of a hold that is no longer in its owner's
 * list: it does not count, and the next request of that attempt removes it. */
static bool is_left_over(const struct model_key *key, const struct model_item *hold)
{
    const char *owner = hold->value, *end = hold->value + hold->value_len;
    for (int n = 4; n && owner < end; owner++)
        n -= *owner == ' ';
    const char *blank = memchr(owner, ' ', (size_t)(end - owner));
    if (!w.refused_seen || !blank || *owner == '-')
        return false;

    size_t len = (size_t)(blank - owner);
    for (uint32_t i = 0; i < key->items; i++) {
        struct model_item list = model_look_item(model, key, i);
        if (list.name_len == len + 1 && list.name[0] == '+' &&
            memcmp(list.name + 1, owner, len) == 0)
            return !memmem(list.value, list.value_len, hold->name, hold->name_len);
    }
    return true;
}

static void look_at_many(struct history_sight *s, const struct model_key *key)
{
    struct model_key ends;
    for (uint32_t i = 0; i < key->items; i++) {
        struct model_item field = model_look_item(model, key, i);
        if (field.name_len == 2 && memcmp(field.name, "@c", 2) == 0)
            s->capacity = (uint32_t)word_at(field.value, field.value_len, 0);
        if (field.name_len == REDIS_ID_TEXT && s->holds < MAX_ATTEMPTS &&
            !is_left_over(key, &field))
            s->hold[s->holds++] =
                (struct seen_hold){.attempt = find_attempt(field.name, field.name_len),
                                   .units = (uint32_t)word_at(field.value, field.value_len, 0),
                                   .token = (uint64_t)word_at(field.value, field.value_len, 1),
                                   .arrival = (double)word_at(field.value, field.value_len, 5)};
    }
    if (!model_look(model, "{" LOCK "}:h", sizeof "{" LOCK "}:h" - 1, &ends))
        return;
    for (uint32_t i = 0; i < ends.items; i++) {
        struct model_item end = model_look_item(model, &ends, i);
        int id = find_attempt(end.name, end.name_len);
        for (unsigned h = 0; h < s->holds; h++)
            if (s->hold[h].attempt == id)
                s->hold[h].end_us = (int64_t)end.score;
    }
    for (unsigned h = 0; h < s->holds; h++)
        s->used += s->hold[h].units;
}

enum { STEP_MS = 100 }; /* as STEP in common.lua */

/* The word of a waiter's record from which its client's sign of life is named: "i{lock:}:inbox:ID".
 */
static bool has_sign_of_life(const char *record_of, size_t len)
{
    const char *at = record_of, *end = record_of + len;
    char name[160];
    struct model_key key;
    for (int n = 8; n && at < end; at++)
        n -= *at == ' ';
    const char *blank = memchr(at, ' ', (size_t)(end - at));
    int size = blank ? snprintf(name, sizeof name, "%.*s:alive", (int)(blank - at - 1), at + 1) : 0;
    return size > 0 && model_look(model, name, (size_t)size, &key) &&
           key.left_ms < PRESENCE_MS + STEP_MS;
}

/* As is_alive() in common.lua. */
static void look_at_waiter(struct seen_place *seen, const char *text, size_t len)
{
    const int64_t presence_us = PRESENCE_MS * 1000;
    int64_t asked_us = word_at(text, len, 0) - word_at(text, len, 1) * 1000;
    seen->due_us = word_at(text, len, 0);
    int64_t age_us = server_us() - asked_us;
    bool is_fresh = age_us < presence_us && age_us > -STEP_MS * 1000;
    seen->alive = seen->due_us > server_us() && (is_fresh || has_sign_of_life(text, len));
}

/* An ask that was refused half-way may leave a hold beside its place in the queue, until its
 * release takes both. */
static bool is_half_there(const struct history_sight *s, int attempt)
{
    for (unsigned i = 0; w.refused_seen && attempt >= 0 && i < s->holds; i++)
        if (s->hold[i].attempt == attempt)
            return true;
    return false;
}

static void look_at_queue(struct history_sight *s)
{
    struct model_key queue, waiters;
    if (!model_look(model, "{" LOCK "}:q", sizeof "{" LOCK "}:q" - 1, &queue))
        return;
    bool has = model_look(model, "{" LOCK "}:w", sizeof "{" LOCK "}:w" - 1, &waiters);
    for (uint32_t i = 0; i < queue.items && s->places < MAX_ATTEMPTS; i++) {
        struct model_item place = model_look_item(model, &queue, i);
        if (is_half_there(s, find_attempt(place.name, place.name_len)))
            continue;
        struct seen_place *seen = &s->place[s->places++];
        *seen = (struct seen_place){.attempt = find_attempt(place.name, place.name_len),
                                    .arrival = place.score};
        for (uint32_t j = 0; has && j < waiters.items; j++) {
            struct model_item record_of = model_look_item(model, &waiters, j);
            if (record_of.name_len == place.name_len &&
                memcmp(record_of.name, place.name, place.name_len) == 0)
                look_at_waiter(seen, record_of.value, record_of.value_len);
        }
    }
}

/* Whose request ran last; it may have stood behind one that was blocked until now. NULL: nobody's.
 */
static const struct link *served_link(void)
{
    unsigned connection = model_counts(model).by;
    for (unsigned i = w.links; i-- > 0 && w.served < 0;)
        if (links[i].server_open && links[i].connection == connection)
            return &links[i];
    return w.served < 0 ? NULL : &links[w.served];
}

static void look(struct history_sight *s)
{
    struct model_key key;
    const struct link *served = served_link();
    s->clock_us = server_us();
    s->by = served ? (int)served->process : H_NOBODY;
    s->by_life = served ? served->life : 0;
    s->holds = s->places = s->used = 0;
    s->capacity = w.capacity;
    s->plain = s->foreign = false;
    s->there = model_look(model, LOCK, sizeof LOCK - 1, &key);
    if (s->there && key.kind == 's')
        look_at_plain(s, &key);
    else if (s->there)
        look_at_many(s, &key);
    look_at_queue(s);
}

static void look_away(void);

/* A request of somebody who has long turned away, and hears of nothing: half of it stays until its
 * time is over. */
static void doubt_ghosts(void)
{
    const struct link *link = served_link();
    for (unsigned id = 0; link && !link->client_open && id < w.attempts; id++)
        if (w.attempt[id].process == link->process && w.attempt[id].claim.state == CLAIM_OVER)
            tell_judge((struct history_event){.what = H_OVER, .who = id, .flags = H_DOUBT});
}

static void disturb_all(void)
{
    tell_fault(H_AWAY, H_ALL, w.now);
}

/* A script ended half-way: what it left is judged by what users believe and get from then on. */
static bool saw_refusal(const struct model_counts *counts)
{
    if (counts->refused == w.refused_seen)
        return false;
    note(-1, "refuses a call in line %d of %.8s", counts->refused_line, counts->refused_in);
    tally.scripts += counts->scripts - w.scripts_seen;
    tally.refused += counts->refused - w.refused_seen;
    w.refused_seen = counts->refused;
    w.scripts_seen = counts->scripts;
    w.requests_seen = counts->requests;
    disturb_all();
    doubt_ghosts();
    look_away();
    return true;
}

/* What ours hold or wait for is in the index of names. A plain SET (no token) adds nothing, and a
 * call that was refused may have been that one. */
static void check_index(void)
{
    static const char index_name[] = "{lock:}:names", name[] = "L";
    struct model_key index;
    bool is_used = w.sight.places > 0;
    for (unsigned h = 0; h < w.sight.holds; h++)
        is_used |= w.sight.hold[h].token > NO_TOKEN;
    if (!is_used || w.refused_seen)
        return;

    bool has = model_look(model, index_name, sizeof index_name - 1, &index);
    for (uint32_t i = 0; has && i < index.items; i++) {
        struct model_item item = model_look_item(model, &index, i);
        if (item.name_len == sizeof name - 1 && memcmp(item.name, name, item.name_len) == 0)
            return;
    }
    fails("the lock is in use, and the index of names lacks it");
}

/* After whatever may have run a script, or taken the lock without one. */
static void observe(void)
{
    struct model_counts counts = model_counts(model);
    if (saw_refusal(&counts))
        return;
    if (counts.scripts == w.scripts_seen && (!w.plain || counts.requests == w.requests_seen))
        return;
    tally.scripts += counts.scripts - w.scripts_seen;
    w.scripts_seen = counts.scripts;
    w.requests_seen = counts.requests;
    look(&w.sight);
    check_index();
    tell_judge((struct history_event){.what = H_SHOWN, .sight = &w.sight});
}

/* What it lost, or has by force, does not follow from any request. */
static void look_away(void)
{
    look(&w.sight);
    history_look_away(judge, &w.sight);
}

static void note_sight(void)
{
    char text[120];
    int len = 0;
    if (!recording)
        return;
    for (unsigned h = 0; h < w.sight.holds && len < 80; h++)
        len += snprintf(text + len, sizeof text - (size_t)len, " a%d", w.sight.hold[h].attempt);
    if (w.sight.places)
        len += snprintf(text + len, sizeof text - (size_t)len, " |");
    for (unsigned i = 0; i < w.sight.places && len < 100; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, " a%d", w.sight.place[i].attempt);
    note(-1, "has%s", len ? text : " nobody");
}

static void serve_bytes(unsigned number, const char *bytes, uint32_t len)
{
    const struct link *link = &links[number];
    if (!link->server_open || !w.server_up)
        return;
    uint64_t scripts = model_counts(model).scripts;
    tally.ghosts += !link->client_open;
    w.served = (int)number;
    model_feed(model, link->connection, bytes, len);
    observe();
    w.served = -1;
    if (model_counts(model).scripts != scripts)
        note_sight();
    let_server_speak();
    if (!model_connected(model, link->connection)) {
        links[number].server_open = false;
        plan_down(number);
    }
}

/* ---- Faults ---- */

static bool has_snapshot; /* of the replica, which does not follow */

/* The network between that process and the server is gone for a while. */
static void part(unsigned p)
{
    nanos until = w.now + draw_time(3 * w.ttl);
    tally.parts++;
    tell_fault(H_LINE, p, until);
    note((int)p, "is cut off until %.1f", (double)until / 1e6);
    w.process[p].parted_until = until;
}

static void cut_all_links(void)
{
    for (unsigned i = 0; i < w.links; i++) {
        if (!links[i].server_open)
            continue;
        links[i].server_open = false;
        if (draw(5))
            plan_down(i);
    }
    w.server_up = false;
    schedule((struct occurrence){.at = w.now + draw_time(w.ttl), .what = SERVER_UP});
    disturb_all();
    plan_server_tick();
}

static void restart_server(bool keep_data)
{
    note(-1, keep_data ? "starts again" : "starts again without data");
    model_restart(model, keep_data);
    cut_all_links();
    if (keep_data) {
        tally.restarts++;
        return;
    }
    tally.wipes++;
    tell_fault(H_FORGOT, H_ALL, w.now);
}

static void step_clock(int64_t by_us)
{
    note(-1, "its clock steps by %lld ms", (long long)by_us / 1000);
    w.server_offset_us += by_us;
    tell_judge((struct history_event){.what = H_FAULT,
                                      .fault = by_us < 0 ? H_BACK : H_AHEAD,
                                      .process = H_ALL,
                                      .until = w.now,
                                      .by = by_us * 1000});
    set_server_time();
    plan_server_tick();
}

/* Whoever waited for the replica has lost nothing by that; its clock is as good as the other one's.
 */
static void fail_over(void)
{
    int64_t step = (int64_t)draw(40001) - 20000;
    note(-1, "a replica that lags takes over");
    model_promote(model);
    tally.failovers++;
    tally.kept_failovers += w.strong;
    has_snapshot = false;
    tell_fault(H_LAGS, H_ALL, w.now);
    tell_fault(w.strong ? H_KEPT : H_STALE, H_ALL, w.now);
    cut_all_links();
    if (w.strong)
        model_replicas(model, 1);
    else
        step_clock(step);
}

static void stop_following(void)
{
    nanos span = draw_time(4 * w.ttl);
    model_snapshot(model);
    has_snapshot = true;
    if (!w.strong)
        return;
    note(-1, "its replica does not follow");
    model_replicas(model, w.options.plant == PLANT_WAIT_SHORT);
    tell_fault(H_LAGS, H_ALL, H_NEVER);
    schedule((struct occurrence){.at = w.now + span, .what = REPLICA_FOLLOWS});
}

static void follow_again(void)
{
    if (!has_snapshot)
        return;
    note(-1, "its replica follows again");
    has_snapshot = false;
    model_replicas(model, 1);
    tell_fault(H_LAGS, H_ALL, w.now);
    observe();
    let_server_speak();
}

/* Both are drawn apart, as in draw_clock(). */
static void refuse_something(enum fault_bit bit)
{
    unsigned which = draw_from(&w.refuse_random, CALLED_COMMANDS),
             error = draw_from(&w.refuse_random, CALL_ERRORS);
    uint64_t nth = 1 + draw_from(&w.refuse_random, 40);
    nanos span = w.ttl / 4096 * draw_from(&w.refuse_random, 4096);
    if (is_healthy() || !(w.options.faults & 1u << bit))
        return;
    if (bit == FAULT_BIT_REFUSE) {
        model_fail_call(model, nth, call_errors[error].text);
        return;
    }
    note(-1, "forbids %s", called_commands[which]);
    tally.rights++;
    tell_fault(H_AWAY, H_ALL, w.now + span);
    model_forbid(model, called_commands[which]);
    schedule((struct occurrence){.at = w.now + span, .what = SERVER_RIGHTS});
}

static void server_fault(enum fault_bit bit)
{
    if (bit == FAULT_BIT_REFUSE || bit == FAULT_BIT_RIGHT) {
        refuse_something(bit);
        return;
    }
    nanos span = draw_time(draw(2) ? 2 * w.ttl : 20 * w.ttl);
    bool back = draw(2);
    bool allowed = !is_healthy() && w.options.faults & 1u << bit;
    if (!allowed || !w.server_up)
        return;
    switch (bit) {
    case FAULT_BIT_RESTART:
        restart_server(true);
        break;
    case FAULT_BIT_WIPE:
        restart_server(false);
        break;
    case FAULT_BIT_FAILOVER: /* first the replica stops to follow, then it takes over */
        if (has_snapshot)
            fail_over();
        else
            stop_following();
        break;
    case FAULT_BIT_STEP:
        tally.steps++;
        step_clock((back ? -span : span) / 1000);
        break;
    case FAULT_BIT_FULL:
        note(-1, "its memory is full");
        tally.fulls++;
        disturb_all();
        model_full(model, true);
        schedule((struct occurrence){.at = w.now + span / 8, .what = SERVER_ROOM});
        break;
    default:
        note(-1, "forgets the library and the scripts");
        tally.flushes++;
        disturb_all();
        model_script_flush(model);
        model_function_flush(model);
    }
    w.scripts_seen = model_counts(model).scripts;
    look_away();
}

/* ---- Other programs ---- */

/* One request on a connection of its own; what it is answered with begins with `good`. */
static bool ask_server(const char *request, const char *good)
{
    size_t len;
    unsigned connection = model_connect(model);
    model_feed(model, connection, request, strlen(request));
    const char *answer = model_take(model, connection, &len);
    bool is_good = len >= strlen(good) && memcmp(answer, good, strlen(good)) == 0;
    model_disconnect(model, connection);
    return is_good;
}

static void foreign_asks(void)
{
    char request[200];
    long long ms = 1 + draw((uint32_t)(w.ttl / NANOS_OF_MS(1)));
    snprintf(request, sizeof request,
             "*6\r\n$3\r\nSET\r\n$6\r\n" LOCK
             "\r\n$7\r\nforeign\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%d\r\n%lld\r\n",
             snprintf(NULL, 0, "%lld", ms), ms);
    if (!w.server_up || !(w.options.faults & FAULT_FOREIGN) || !ask_server(request, "+OK"))
        return;
    tally.foreigners++;
    w.foreign_until = w.now + NANOS_OF_MS(ms) - NANOS_OF_MS(1);
    note(-1, "has another program's lock for %lld ms", ms);
    look_away();
    tell_judge((struct history_event){.what = H_FOREIGN, .until = w.foreign_until});
    schedule((struct occurrence){.at = w.now + draw_time(NANOS_OF_MS(ms)), .what = FOREIGN_END});
}

static void foreign_ends(void)
{
    if (w.now >= w.foreign_until || draw(2) ||
        !ask_server("*2\r\n$3\r\nGET\r\n$6\r\n" LOCK "\r\n", "$7\r\nforeign\r\n"))
        return;
    w.foreign_until = 0;
    ask_server("*2\r\n$3\r\nDEL\r\n$6\r\n" LOCK "\r\n", ":1");
    look_away();
    tell_judge((struct history_event){.what = H_FOREIGN});
    note(-1, "the other program gives the lock back");
}
