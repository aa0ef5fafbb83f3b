/* server.h - what happens to the server and inside it: its faults, other programs, and a look at the one lock after
 * every script that ran, which the judge is shown. */
#pragma once
#include "drive.h"

#define LOCK "lock:L"

/* ---- A look inside --------------------------------------------------------------------------------------------- */

static int find_attempt(const char *id, size_t len)
{
    for (unsigned i = w.attempts; len >= HF_ID_TEXT && i-- > 0;)
        if (memcmp(w.attempt[i].id, id, HF_ID_TEXT) == 0)
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

/* A SET of one that needs no token may come when that one has long given up. Its tombstone says so to whoever asks
 * next: nobody holds it. */
static bool is_buried(const char *id)
{
    struct model_key waiters;
    bool has = model_look(model, "{" LOCK "}:w", sizeof "{" LOCK "}:w" - 1, &waiters);
    for (uint32_t i = 0; has && i < waiters.items; i++) {
        struct model_item stone = model_look_item(model, &waiters, i);
        if (stone.name_len == HF_ID_TEXT + 1 && stone.name[0] == '!' && memcmp(stone.name + 1, id, HF_ID_TEXT) == 0)
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
    };
}

static void look_at_many(struct history_sight *s, const struct model_key *key)
{
    struct model_key ends;
    for (uint32_t i = 0; i < key->items; i++) {
        struct model_item field = model_look_item(model, key, i);
        if (field.name_len == 2 && memcmp(field.name, "@c", 2) == 0)
            s->capacity = (uint32_t)word_at(field.value, field.value_len, 0);
        if (field.name_len == HF_ID_TEXT && s->holds < MAX_ATTEMPTS)
            s->hold[s->holds++] = (struct seen_hold){.attempt = find_attempt(field.name, field.name_len),
                                                     .units = (uint32_t)word_at(field.value, field.value_len, 0),
                                                     .token = (uint64_t)word_at(field.value, field.value_len, 1)};
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

static void look_at_queue(struct history_sight *s)
{
    struct model_key queue, waiters;
    if (!model_look(model, "{" LOCK "}:q", sizeof "{" LOCK "}:q" - 1, &queue))
        return;
    bool has = model_look(model, "{" LOCK "}:w", sizeof "{" LOCK "}:w" - 1, &waiters);
    for (uint32_t i = 0; i < queue.items && s->places < MAX_ATTEMPTS; i++) {
        struct model_item place = model_look_item(model, &queue, i);
        struct seen_place *seen = &s->place[s->places++];
        *seen = (struct seen_place){.attempt = find_attempt(place.name, place.name_len), .arrival = place.score};
        for (uint32_t j = 0; has && j < waiters.items; j++) {
            struct model_item record_of = model_look_item(model, &waiters, j);
            if (record_of.name_len == place.name_len && memcmp(record_of.name, place.name, place.name_len) == 0)
                seen->due_us = word_at(record_of.value, record_of.value_len, 0);
        }
    }
}

/* Whose request ran last; it may have stood behind one that was blocked until now. NULL: nobody's. */
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

/* After whatever may have run a script, or taken the lock without one. */
static void observe(void)
{
    struct model_counts counts = model_counts(model);
    if (counts.scripts == w.scripts_seen && (!w.plain || counts.requests == w.requests_seen))
        return;
    tally.scripts += counts.scripts - w.scripts_seen;
    w.scripts_seen = counts.scripts;
    w.requests_seen = counts.requests;
    look(&w.sight);
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

static void set_server_time(void)
{
    model_time_set(model, server_us());
    model_advance(model);
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

/* ---- Faults ---------------------------------------------------------------------------------------------------- */

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
    tell_judge((struct history_event){
        .what = H_FAULT, .fault = by_us < 0 ? H_BACK : H_AHEAD, .process = H_ALL, .until = w.now, .by = by_us * 1000});
    set_server_time();
    plan_server_tick();
}

/* Whoever waited for the replica has lost nothing by that; its clock is as good as the other one's. */
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
    hf_nanos span = draw_time(4 * w.ttl);
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

static void server_fault(enum fault_bit bit)
{
    hf_nanos span = draw_time(draw(2) ? 2 * w.ttl : 20 * w.ttl);
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
        note(-1, "forgets the scripts");
        tally.flushes++;
        disturb_all();
        model_script_flush(model);
    }
    w.scripts_seen = model_counts(model).scripts;
    look_away();
}

/* ---- Other programs -----------------------------------------------------------------------------------------------
 */

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
    long long ms = 1 + draw((uint32_t)(w.ttl / HF_MS(1)));
    snprintf(request, sizeof request,
             "*6\r\n$3\r\nSET\r\n$6\r\n" LOCK "\r\n$7\r\nforeign\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%d\r\n%lld\r\n",
             snprintf(NULL, 0, "%lld", ms), ms);
    if (!w.server_up || !(w.options.faults & FAULT_FOREIGN) || !ask_server(request, "+OK"))
        return;
    tally.foreigners++;
    w.foreign_until = w.now + HF_MS(ms) - HF_MS(1);
    note(-1, "has another program's lock for %lld ms", ms);
    look_away();
    tell_judge((struct history_event){.what = H_FOREIGN, .until = w.foreign_until});
    schedule((struct occurrence){.at = w.now + draw_time(HF_MS(ms)), .what = FOREIGN_END});
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
