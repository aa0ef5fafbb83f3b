/* view.c - looks at the engine, finds what changed since the last look, and feeds the streams of the pages.
 *
 * What changed is the difference between two looks, so locks that others take through other doors are seen too. A hold
 * that is gone after its time was up has expired; one that is gone before was given back, or taken away. */
#include "view.h"
#include "engine.h"
#include "leases.h"
#include "patterns.h"
#include "routes.h"
#include "rows.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNWATCHED_MS 5000 /* how often to look when no page is open */
#define PAST_MAX 400      /* changes that a new page is told of */
#define BROKEN_MAX 100    /* holds that were taken away and may still be seen */

struct stream {
    struct exchange *x;
    struct view *view;
    struct stream *next;
};

struct view {
    struct server *server;
    struct event *timer;
    struct stream *streams;
    bool looks, stopped; /* looks: a job is under way */
    json_t *seen;        /* rows of the last look by their key; NULL: none yet */
    json_t *past;        /* changes, newest last */
    json_t *broken;      /* reasons by the token that was taken away, until it is seen that it is gone */
    int64_t seen_at, counted_at;
    struct sighting sighting;
    struct patterns patterns;
};

struct look {
    struct job job;
    struct view *view;
    json_t *rows;
    hf_status status;
    int64_t took_ms;
    bool counts; /* the servers of the quorum, too */
    size_t servers_up;
};

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

static void on_gone(struct exchange *x)
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

/* Only what the caller may see; `rows` itself when that is all of them. Takes no reference; gives one. */
static json_t *visible(const struct stream *stream, json_t *rows)
{
    const struct right_holder *caller = stream->x->caller;
    if (!caller || !*caller->prefix)
        return json_incref(rows);
    json_t *some = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (access_allows(caller, RIGHT_READ, text_of(json_array_get(rows, i), "name")))
            json_array_append(some, json_array_get(rows, i));
    return some;
}

static void push_rows(struct stream *stream, const char *event, const char *key, json_t *rows, json_t *more)
{
    json_t *data = json_pack("{s:o}", key, visible(stream, rows));
    json_object_update(data, more);
    bool kept_up = push(stream, event, data);
    json_decref(data);
    if (!kept_up)
        end_stream(stream);
}

static void broadcast(struct view *view, const char *event, const char *key, json_t *rows, json_t *more)
{
    for (struct stream *stream = view->streams, *next; stream; stream = next) {
        next = stream->next;
        push_rows(stream, event, key, rows, more);
    }
}

/* ---- Changes ---- */

static void note_change(struct view *view, json_t *changes, const char *event, json_t *row, const char *text)
{
    json_t *change = json_pack("{s:I, s:s, s:s, s:O, s:I, s:s, s:s}", "at", (json_int_t)wall_ms(), "event", event,
                               "name", text_of(row, "name"), "token", json_object_get(row, "token"), "ms",
                               (json_int_t)number_of(row, "sinceMs"), "label", text_of(row, "label"), "text", text);
    if (!change)
        return;
    json_array_append(changes, change);
    json_array_append_new(view->past, change);
    if (json_array_size(view->past) > PAST_MAX)
        json_array_remove(view->past, 0);
}

static void key_of(const json_t *row, char *key, size_t size)
{
    bool holder = is_holder(row);
    snprintf(key, size, "%c %s %s %lld", holder ? 'h' : 'w', text_of(row, holder ? "token" : "ticket"),
             text_of(row, "name"), holder ? 0LL : (long long)number_of(row, "pid"));
}

static json_t *by_key(json_t *rows)
{
    json_t *object = json_object();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char key[HF_NAME_MAX + 80];
        json_t *row = json_array_get(rows, i);
        key_of(row, key, sizeof key);
        json_object_set(object, key, row);
    }
    return object;
}

static void note_end(struct view *view, json_t *changes, json_t *row, int64_t passed_ms)
{
    if (!is_holder(row)) {
        note_change(view, changes, "left", row, "does not wait any more");
        return;
    }
    json_t *reason = json_object_get(view->broken, text_of(row, "token"));
    if (reason) {
        note_change(view, changes, "broken", row, json_string_value(reason));
        json_object_del(view->broken, text_of(row, "token"));
        return;
    }
    int64_t left_ms = number_of(row, "leftMs");
    bool expired = left_ms >= 0 && left_ms <= passed_ms;
    if (expired)
        patterns_lost(&view->patterns);
    note_change(view, changes, expired ? "expired" : "released", row,
                expired ? "its time was up before it was given back" : "given back");
}

/* Waiters that hold now did not leave. */
static json_t *tickets_of_holders(json_t *rows)
{
    json_t *tickets = json_object();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char key[HF_NAME_MAX + 80];
        json_t *row = json_array_get(rows, i);
        snprintf(key, sizeof key, "%s %s", text_of(row, "ticket"), text_of(row, "name"));
        if (is_holder(row) && *text_of(row, "ticket"))
            json_object_set_new(tickets, key, json_true());
    }
    return tickets;
}

static json_t *find_changes(struct view *view, json_t *rows, json_t *now)
{
    json_t *changes = json_array(), *tickets = tickets_of_holders(rows), *row;
    int64_t passed_ms = clock_ms() - view->seen_at;
    const char *key;
    json_object_foreach(view->seen, key, row)
    {
        char ticket[HF_NAME_MAX + 80];
        snprintf(ticket, sizeof ticket, "%s %s", text_of(row, "ticket"), text_of(row, "name"));
        bool got_it = !is_holder(row) && json_object_get(tickets, ticket);
        if (!got_it && !json_object_get(now, key))
            note_end(view, changes, row, passed_ms);
    }
    json_object_foreach(now, key, row) if (!json_object_get(view->seen, key))
        note_change(view, changes, is_holder(row) ? "granted" : "queued", row, "");
    json_decref(tickets);
    return changes;
}

static void measure(struct view *view, json_t *rows)
{
    struct sighting seen = {.up = true, .servers_up = view->sighting.servers_up};
    int64_t passed_ms = view->seen ? clock_ms() - view->seen_at : 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        int64_t since = number_of(row, "sinceMs");
        bool holder = is_holder(row);
        int64_t *oldest = holder ? &seen.oldest_holder_ms : &seen.oldest_waiter_ms;
        *(holder ? &seen.held : &seen.waiters) += 1;
        if (since > *oldest)
            *oldest = since;
        if (!holder)
            patterns_waited(&view->patterns, text_of(row, "name"), passed_ms);
    }
    view->sighting = seen;
}

/* ---- Looking ---- */

static void arm(struct view *view)
{
    int64_t ms = view->streams ? setting_number(&view->server->settings, SET_REFRESH) : UNWATCHED_MS;
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    if (!view->stopped)
        event_add(view->timer, &time);
}

static void append_row(void *rows, const struct hf_row *row)
{
    if (strncmp(row->name, RECORD_PREFIX, strlen(RECORD_PREFIX)) != 0)
        rows_append(rows, row);
}

/* A server that does not answer has nothing to say of itself. */
static void count_server(void *count, const struct hf_finding *finding)
{
    *(size_t *)count += strcmp(finding->what, "server") == 0 && finding->health != HF_HEALTH_BAD;
}

static void do_look(struct job *job)
{
    struct look *look = (struct look *)(void *)job;
    int64_t began = clock_ms();
    look->status = hf_list(engine_client(look->view->server->engine), NULL, append_row, look->rows);
    look->took_ms = clock_ms() - began;
    if (look->counts &&
        hf_examine(engine_client(look->view->server->redlock), count_server, &look->servers_up) != HF_OK)
        look->servers_up = 0;
}

static void take_in(struct view *view, struct look *look)
{
    json_t *now = by_key(look->rows);
    json_t *changes = view->seen ? find_changes(view, look->rows, now) : json_array();
    measure(view, look->rows);
    json_decref(view->seen);
    view->seen = now;
    view->seen_at = clock_ms();
    json_t *more = json_pack("{s:I, s:b, s:s, s:I}", "at", (json_int_t)wall_ms(), "up", 1, "words",
                             "the engine answers", "roundTripMs", (json_int_t)look->took_ms);
    broadcast(view, "snapshot", "rows", look->rows, more);
    json_decref(more);
    more = json_object();
    if (json_array_size(changes) > 0)
        broadcast(view, "changes", "changes", changes, more);
    json_decref(more);
    json_decref(changes);
}

static void tell_silence(struct view *view, hf_status status)
{
    json_t *nothing = json_array();
    json_t *more = json_pack("{s:I, s:b, s:s}", "at", (json_int_t)wall_ms(), "up", 0, "words", hf_status_text(status));
    view->sighting.up = false;
    broadcast(view, "silence", "rows", nothing, more);
    json_decref(more);
    json_decref(nothing);
}

static void after_look(struct job *job)
{
    struct look *look = (struct look *)(void *)job;
    struct view *view = look->view;
    view->looks = false;
    if (look->counts)
        view->sighting.servers_up = look->servers_up;
    if (look->status == HF_OK)
        take_in(view, look);
    else
        tell_silence(view, look->status);
    json_decref(look->rows);
    free(look);
    arm(view);
}

static void start_look(struct view *view)
{
    struct look *look = view->looks || view->stopped ? NULL : calloc(1, sizeof *look);
    if (!look)
        return;
    *look = (struct look){.job = {do_look, after_look, NULL}, .view = view, .rows = json_array()};
    look->counts = view->server->redlock && clock_ms() - view->counted_at >= UNWATCHED_MS;
    if (look->counts)
        view->counted_at = clock_ms();
    view->looks = true;
    workers_post(view->server->workers, &look->job);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    start_look(arg);
}

/* ---- Routes ---- */

void view_stream(struct exchange *x)
{
    struct view *view = server_of(x)->view;
    if (piece_is(x->head.method, "HEAD")) {
        exchange_answer(x, 200, "text/event-stream", NULL, 0);
        return;
    }
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream || view->stopped) {
        free(stream);
        answer_problem(x, 503, "stopping", "the service stops", NULL);
        return;
    }
    *stream = (struct stream){.x = x, .view = view, .next = view->streams};
    view->streams = stream;
    x->work = stream;
    x->gone = on_gone;
    exchange_field(x, "Cache-Control", "no-store");
    exchange_stream(x, "text/event-stream");
    json_t *nothing = json_object();
    push_rows(stream, "past", "changes", view->past, nothing);
    json_decref(nothing);
    start_look(view);
}

void view_patterns(struct exchange *x)
{
    answer_json(x, 200, patterns_json(&server_of(x)->view->patterns, x->caller));
}

/* ---- As a whole ---- */

struct view *view_new(struct server *server)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return NULL;
    view->server = server;
    view->past = json_array();
    view->broken = json_object();
    view->timer = event_new(server->base, -1, 0, on_timer, view);
    if (!view->timer || !view->past || !view->broken) {
        view_free(view);
        return NULL;
    }
    start_look(view);
    return view;
}

void view_stop(struct view *view)
{
    view->stopped = true;
    event_del(view->timer);
    while (view->streams)
        end_stream(view->streams);
}

void view_free(struct view *view)
{
    if (!view)
        return;
    if (view->timer)
        event_free(view->timer);
    json_decref(view->seen);
    json_decref(view->past);
    json_decref(view->broken);
    patterns_free(&view->patterns);
    free(view);
}

void view_broken(struct view *view, uint64_t token, const char *reason)
{
    char key[24];
    snprintf(key, sizeof key, "%llu", (unsigned long long)token);
    if (json_object_size(view->broken) >= BROKEN_MAX)
        json_object_clear(view->broken);
    json_object_set_new(view->broken, key, json_string(reason));
}

const struct sighting *view_sighting(const struct view *view)
{
    return &view->sighting;
}
