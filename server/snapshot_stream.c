/* snapshot_stream.c - polls the engine for the pages and the gauges, and feeds the pages' streams
 * with its state and with what changed.
 *
 * Changes of leases that this instance granted come from their own events, with exact times. While
 * a page is open, the library's watch adds those of other programs (lock_watch.c); they are marked
 * as sampled. */
#include "snapshot_stream.h"
#include "board.h"
#include "contention_stats.h"
#include "leases.h"
#include "lock_client.h"
#include "lock_watch.h"
#include "routes.h"
#include "row_json.h"
#include "wait_view.h"
#include <stdlib.h>
#include <string.h>

#define UNWATCHED_MS 5000 /* interval of polls without an open page */
#define FLUSH_MS 50
#define ABOUT_MS 5000   /* interval at which a page is told of the service itself */
#define SERVER_MS 60000 /* interval at which the engine's server is asked for its version */
#define PAST_MAX 400    /* number of past changes that a new page gets */

struct stream {
    struct exchange *x;
    struct snapshot_stream *view;
    struct stream *next;
};

/* A past change, kept as a struct with its texts behind it. It becomes JSON only when a page is
 * opened, because most changes are never sent to one. */
struct past_change {
    struct lease_change change;
    char text[]; /* the texts of `change` */
};

struct snapshot_stream {
    struct server *server;
    struct event *timer;
    struct stream *streams;
    bool is_polling, stopped;           /* is_polling: a poll is in flight */
    struct past_change *past[PAST_MAX]; /* a ring of the last changes */
    uint64_t past_holds[PAST_MAX];      /* hash_of() each of them; read at each end of a hold */
    size_t past_count;                  /* changes so far; the next one goes to this place */
    json_t *fresh;                      /* changes that were not sent to the pages yet */
    struct event *flush;                /* timer that sends `fresh` */
    struct lock_watch *watch;
    int64_t polled_at, counted_at, told_at, asked_at;
    struct snapshot latest;
    struct contention patterns;
    struct wait_view waits;
    struct board board;
};

struct poll {
    struct job job;
    struct snapshot_stream *view;
    json_t *rows;
    hf_status status;
    int64_t took_ms;
    bool counts; /* the poll also counts the servers of the quorum */
    size_t servers_up;
    json_t *clients; /* the client of each row; NULL if the poll failed */
    bool asks;       /* the poll also asks for the version of the engine's server */
    char server[BOARD_SERVER_BYTES];
};

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

static bool is_holder(const json_t *row)
{
    return strcmp(text_of(row, "role"), "holder") == 0;
}

/* ---- Streams ---- */

static void end_stream(struct stream *stream)
{
    struct stream **at = &stream->view->streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    exchange_end(stream->x);
    free(stream);
}

static void on_disconnect(struct exchange *x)
{
    end_stream(x->work);
}

static bool push(struct stream *stream, const char *event, json_t *data)
{
    char *text = json_dumps(data, JSON_COMPACT), *message = NULL;
    int len = text ? asprintf(&message, "event: %s\ndata: %s\n\n", event, text) : -1;
    bool kept_up = len > 0 && exchange_push(stream->x, message, (size_t)len);

    free(text);
    free(len > 0 ? message : NULL);
    return kept_up;
}

static bool may_see_all(const struct caller *caller, const json_t *names)
{
    bool may = true;

    for (size_t i = 0; i < json_array_size(names); i++)
        may &= auth_allows(caller, RIGHT_READ, json_string_value(json_array_get(names, i)));
    return may;
}

/* Returns a row without the names that its caller may not see, as a new reference. */
static json_t *visible_row(const struct caller *caller, json_t *row)
{
    if (may_see_all(caller, json_object_get(row, "waitsFor")))
        return json_incref(row);

    json_t *copy = json_copy(row);
    json_object_del(copy, "waitsFor");
    return copy;
}

/* Returns the rows that the caller may see: `rows` itself if that is all. A new reference. */
static json_t *visible(const struct stream *stream, json_t *rows)
{
    const struct caller *caller = stream->x->caller;

    if (!caller || !*caller->prefix)
        return json_incref(rows);

    json_t *some = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (auth_allows(caller, RIGHT_READ, text_of(json_array_get(rows, i), "name")))
            json_array_append_new(some, visible_row(caller, json_array_get(rows, i)));

    return some;
}

/* Returns the deadlocks all of whose names the caller may see, as a new reference. */
static json_t *visible_deadlocks(const struct stream *stream, json_t *deadlocks)
{
    json_t *some = json_array();

    for (size_t i = 0; i < json_array_size(deadlocks); i++)
        if (may_see_all(stream->x->caller, json_array_get(deadlocks, i)))
            json_array_append(some, json_array_get(deadlocks, i));
    return some;
}

static void push_rows(struct stream *stream, const char *event, const char *key, json_t *rows,
                      json_t *more)
{
    json_t *data = json_pack("{s:o}", key, visible(stream, rows));

    json_object_update(data, more);
    if (json_object_get(data, "deadlocks"))
        json_object_set_new(data, "deadlocks",
                            visible_deadlocks(stream, json_object_get(more, "deadlocks")));
    bool kept_up = push(stream, event, data);
    json_decref(data);
    if (!kept_up)
        end_stream(stream);
}

static void broadcast(struct snapshot_stream *view, const char *event, const char *key,
                      json_t *rows, json_t *more)
{
    for (struct stream *stream = view->streams, *next; stream; stream = next) {
        next = stream->next;
        push_rows(stream, event, key, rows, more);
    }
}

/* ---- Changes ---- */

static json_t *milliseconds(int64_t ms)
{
    return ms < 0 ? json_null() : json_integer(ms);
}

static json_t *change_json(const struct lease_change *change)
{
    char token[24];
    json_t *json = json_object();

    snprintf(token, sizeof token, "%llu", (unsigned long long)change->token);
    json_object_set_new(json, "at", json_integer(change->at_ms ? change->at_ms : wall_ms()));
    json_object_set_new(json, "event", json_string(change->event));
    json_object_set_new(json, "name", text_json(change->name));
    json_object_set_new(json, "token", change->token ? json_string(token) : json_null());
    json_object_set_new(json, "heldMs", milliseconds(change->held_ms));
    json_object_set_new(json, "waitedMs", milliseconds(change->waited_ms));
    json_object_set_new(json, "sampled", json_boolean(change->sampled));
    json_object_set_new(json, "text", text_json(change->text));
    json_object_set_new(json, "label", text_json(change->label));
    return json;
}

/* Changes wait for a moment, so that many of them go out in one message. */
static void arm_flush(struct snapshot_stream *view)
{
    struct timeval time = {.tv_usec = FLUSH_MS * 1000};

    if (!view->stopped && !event_pending(view->flush, EV_TIMEOUT, NULL))
        event_add(view->flush, &time);
}

static bool is_end(const char *event)
{
    static const char *const ends[] = {"released", "expired", "broken"};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(event, ends[i]) == 0)
            return true;
    return false;
}

static uint64_t hash_of(const struct lease_change *change)
{
    uint64_t hash = (text_hash(change->name) ^ change->token) * 1099511628211u;
    return hash * 2 + is_end(change->event);
}

/* Returns true if the grant or end of that hold is known already. Reports of this instance about
 * its own leases are exact and come first; a break is reported before the loss that it causes. */
static bool is_known(const struct snapshot_stream *view, const struct lease_change *change)
{
    uint64_t end_of_hold = hash_of(change);

    for (size_t i = 0; change->token && i < PAST_MAX; i++)
        if (view->past_holds[i] == end_of_hold)
            return true;
    return false;
}

static const char *put_text(char **at, const char *text)
{
    char *copy = strcpy(*at, text ? text : "");
    *at += strlen(copy) + 1;
    return copy;
}

static void keep_change(struct snapshot_stream *view, const struct lease_change *change)
{
    const char *texts[] = {change->event, change->name, change->label, change->text};
    size_t size = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        size += (texts[i] ? strlen(texts[i]) : 0) + 1;

    struct past_change *kept = malloc(sizeof *kept + size);
    if (!kept)
        return;

    char *at = kept->text;
    kept->change = *change;
    kept->change.event = put_text(&at, change->event);
    kept->change.name = put_text(&at, change->name);
    kept->change.label = put_text(&at, change->label);
    kept->change.text = put_text(&at, change->text);
    if (!change->at_ms)
        kept->change.at_ms = wall_ms();

    size_t place = view->past_count++ % PAST_MAX;
    free(view->past[place]);
    view->past[place] = kept;
    view->past_holds[place] = hash_of(change);
}

/* Returns the last changes, newest last. */
static json_t *past_json(const struct snapshot_stream *view)
{
    json_t *changes = json_array();
    size_t first = view->past_count > PAST_MAX ? view->past_count - PAST_MAX : 0;

    for (size_t i = first; i < view->past_count; i++)
        json_array_append_new(changes, change_json(&view->past[i % PAST_MAX]->change));
    return changes;
}

void snapshot_change(struct snapshot_stream *view, const struct lease_change *change)
{
    if (is_end(change->event) && is_known(view, change))
        return;

    if (strcmp(change->event, "granted") == 0)
        hour_granted(&view->board.hour, wall_ms(), change->waited_ms);
    if (is_end(change->event))
        hour_ended(&view->board.hour, wall_ms(), change->held_ms);
    if (strcmp(change->event, "expired") == 0)
        contention_lost(&view->patterns);
    keep_change(view, change);
    if (view->streams) {
        json_array_append_new(view->fresh, change_json(change));
        arm_flush(view);
    }
}

static void take_seen(void *arg, const struct lease_change *seen)
{
    struct snapshot_stream *view = arg;

    if (!is_own_name(seen->name) && !is_known(view, seen))
        snapshot_change(view, seen);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct snapshot_stream *view = arg;
    json_t *more = json_object();
    (void)fd;
    (void)what;

    if (view->streams)
        lock_watch_drain(view->watch, take_seen, view);
    if (json_array_size(view->fresh) > 0)
        broadcast(view, "changes", "changes", view->fresh, more);
    json_array_clear(view->fresh);
    json_decref(more);
    lock_watch_run(view->watch, view->streams != NULL && !view->stopped);
    if (view->streams)
        arm_flush(view);
}

static void measure(struct snapshot_stream *view, json_t *rows)
{
    struct snapshot seen = {.up = true, .servers_up = view->latest.servers_up};
    int64_t passed_ms = view->polled_at ? clock_ms() - view->polled_at : 0;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        int64_t since = number_of(row, "sinceMs");
        bool holder = is_holder(row);
        int64_t *oldest = holder ? &seen.oldest_holder_ms : &seen.oldest_waiter_ms;
        *(holder ? &seen.held : &seen.waiters) += 1;
        if (since > *oldest)
            *oldest = since;
        if (!holder)
            contention_waited(&view->patterns, text_of(row, "name"), passed_ms);
    }

    seen.deadlocks = json_array_size(view->waits.deadlocks);
    hour_polled(&view->board.hour, wall_ms(), seen.held, seen.waiters);
    view->latest = seen;
}

/* ---- Polling ---- */

static void arm(struct snapshot_stream *view)
{
    int64_t ms =
        view->streams ? setting_number(&view->server->settings, SET_REFRESH) : UNWATCHED_MS;
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    if (!view->stopped)
        event_add(view->timer, &time);
}

/* Reads all names but those of the service itself: its records may be many. */
static hf_status read_rows(hf_client *client, json_t *rows)
{
    char next[HF_NAME_MAX + 1];
    struct hf_page page = {.size = sizeof page, .except = RECORD_PREFIX};

    return hf_list_page(client, &page, row_json_append, rows, next);
}

/* Counts servers that answered; a silent one has a bad finding. */
static void count_server(void *count, const struct hf_finding *finding)
{
    *(size_t *)count += strcmp(finding->what, "server") == 0 && finding->health != HF_HEALTH_BAD;
}

static void do_poll(struct job *job)
{
    struct poll *poll = (struct poll *)(void *)job;
    int64_t began = clock_ms();

    poll->status = read_rows(lock_client_client(poll->view->server->engine), poll->rows);
    poll->took_ms = clock_ms() - began;
    if (poll->status == HF_OK)
        poll->clients = wait_view_clients(poll->rows);
    if (poll->asks)
        board_ask_server(poll->view->server, poll->server);
    if (poll->counts && hf_diagnose(lock_client_client(poll->view->server->redlock), count_server,
                                    &poll->servers_up) != HF_OK)
        poll->servers_up = 0;
}

static void tell_about(struct snapshot_stream *view, struct stream *stream)
{
    json_t *about = board_json(&view->board, view->server);
    bool kept_up = push(stream, "about", about);

    json_decref(about);
    if (!kept_up)
        end_stream(stream);
}

/* Sends every page the facts about the service itself, once in ABOUT_MS. */
static void tell_all_about(struct snapshot_stream *view)
{
    if (!view->streams || clock_ms() - view->told_at < ABOUT_MS)
        return;

    view->told_at = clock_ms();
    for (struct stream *stream = view->streams, *next; stream; stream = next) {
        next = stream->next;
        tell_about(view, stream);
    }
}

static void take_in(struct snapshot_stream *view, struct poll *poll)
{
    wait_view_update(&view->waits, view->server, poll->rows, poll->clients);
    json_t *more = json_pack("{s:I, s:b, s:s, s:I, s:O}", "at", (json_int_t)wall_ms(), "up", 1,
                             "words", "the engine answers", "roundTripMs",
                             (json_int_t)poll->took_ms, "deadlocks", view->waits.deadlocks);

    measure(view, poll->rows);
    view->polled_at = clock_ms();
    broadcast(view, "snapshot", "rows", poll->rows, more);
    tell_all_about(view);
    json_decref(more);
}

static void report_silence(struct snapshot_stream *view, hf_status status)
{
    json_t *nothing = json_array();
    json_t *more = json_pack("{s:I, s:b, s:s}", "at", (json_int_t)wall_ms(), "up", 0, "words",
                             hf_status_text(status));

    view->latest.up = false;
    broadcast(view, "silence", "rows", nothing, more);
    json_decref(more);
    json_decref(nothing);
}

static void after_poll(struct job *job)
{
    struct poll *poll = (struct poll *)(void *)job;
    struct snapshot_stream *view = poll->view;

    view->is_polling = false;
    if (poll->counts)
        view->latest.servers_up = poll->servers_up;
    if (poll->asks && *poll->server) {
        strcpy(view->board.server, poll->server);
        view->told_at = 0;
    }
    if (poll->status == HF_OK)
        take_in(view, poll);
    else
        report_silence(view, poll->status);

    json_decref(poll->rows);
    json_decref(poll->clients);
    free(poll);
    arm(view);
}

static void start_poll(struct snapshot_stream *view)
{
    struct poll *poll = view->is_polling || view->stopped ? NULL : calloc(1, sizeof *poll);

    if (!poll)
        return;

    *poll = (struct poll){.job = {do_poll, after_poll, NULL}, .view = view, .rows = json_array()};
    poll->counts = view->server->redlock && clock_ms() - view->counted_at >= UNWATCHED_MS;
    if (poll->counts)
        view->counted_at = clock_ms();
    bool is_old = view->asked_at == 0 || clock_ms() - view->asked_at >= SERVER_MS;
    poll->asks = view->streams && is_old;
    if (poll->asks)
        view->asked_at = clock_ms();
    view->is_polling = true;
    workers_post(view->server->workers, &poll->job);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    start_poll(arg);
}

/* ---- Routes ---- */

void route_events(struct exchange *x)
{
    struct snapshot_stream *view = server_of(x)->view;

    if (piece_is(x->head.method, "HEAD")) {
        exchange_answer(x, 200, "text/event-stream", NULL, 0);
        return;
    }

    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream || view->stopped) {
        free(stream);
        answer_problem(x, 503, "stopping", "the service is stopping", NULL);
        return;
    }

    *stream = (struct stream){.x = x, .view = view, .next = view->streams};
    view->streams = stream;
    x->work = stream;
    x->disconnected = on_disconnect;
    exchange_field(x, "Cache-Control", "no-store");
    exchange_stream(x, "text/event-stream");
    json_t *nothing = json_object();
    json_t *past = past_json(view);
    push_rows(stream, "past", "changes", past, nothing);
    json_decref(past);
    json_decref(nothing);
    view->told_at = 0; /* makes the next poll send the facts about the service */
    lock_watch_run(view->watch, true);
    arm_flush(view);
    start_poll(view);
}

void route_patterns(struct exchange *x)
{
    answer_json(x, 200, contention_json(&server_of(x)->view->patterns, x->caller));
}

/* ---- As a whole ---- */

struct snapshot_stream *snapshot_new(struct server *server)
{
    struct snapshot_stream *view = calloc(1, sizeof *view);

    if (!view)
        return NULL;

    view->server = server;
    view->fresh = json_array();
    view->timer = event_new(server->base, -1, 0, on_timer, view);
    view->flush = event_new(server->base, -1, 0, on_flush, view);
    view->watch = lock_watch_new(lock_client_client(server->engine));
    size_t names = (size_t)setting_number(&server->settings, SET_MAX_PATTERNS);
    bool failed = !view->timer || !view->flush || !view->watch || !view->fresh ||
                  !wait_view_open(&view->waits) || !contention_open(&view->patterns, names);
    if (failed) {
        snapshot_free(view);
        return NULL;
    }

    start_poll(view);

    return view;
}

void snapshot_stop(struct snapshot_stream *view)
{
    view->stopped = true;
    event_del(view->timer);
    event_del(view->flush);
    lock_watch_run(view->watch, false);
    while (view->streams)
        end_stream(view->streams);
}

void snapshot_free(struct snapshot_stream *view)
{
    if (!view)
        return;

    if (view->timer)
        event_free(view->timer);
    lock_watch_free(view->watch);
    if (view->flush)
        event_free(view->flush);
    json_decref(view->fresh);
    for (size_t i = 0; i < PAST_MAX; i++)
        free(view->past[i]);
    contention_free(&view->patterns);
    wait_view_free(&view->waits);
    free(view);
}

uint64_t snapshot_dropped(const struct snapshot_stream *view)
{
    return view->patterns.dropped;
}

const struct snapshot *snapshot_latest(const struct snapshot_stream *view)
{
    return &view->latest;
}
