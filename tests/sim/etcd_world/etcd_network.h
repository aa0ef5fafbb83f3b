/* etcd_network.h - http2.h for the simulator: calls travel as wholes, overtake each other, and
 * arrive also when their connection was closed. */
#pragma once
#include "etcd_model.h"

struct http2 {
    struct http2_events events;
    void *ctx;
    unsigned link;
    int32_t streams;
    void *call[4096]; /* by stream; NULL: over */
};

/* In front of the bytes of a message. */
struct frame {
    int32_t stream;
    int code; /* how the call ends; -1: it goes on */
    char text[64];
};

struct http2 *http2_open(const struct http2_events *events, void *ctx, const char *host,
                         const char *token)
{
    const struct etcd_connection *c = ctx;
    const struct client *client = c->etcd->host->ctx;
    (void)host, (void)token;
    struct http2 *h = calloc(1, sizeof *h);
    if (!h)
        abort();
    *h = (struct http2){.events = *events, .ctx = ctx, .link = (unsigned)client->link[c->number]};
    return h;
}

void http2_close(struct http2 *h)
{
    free(h);
}

static void send_request(unsigned link, int32_t stream, const char *path, const void *message,
                         size_t len)
{
    struct frame frame = {.stream = stream};
    snprintf(frame.text, sizeof frame.text, "%s", path);
    char *bytes = malloc(sizeof frame + len);
    if (!bytes)
        abort();
    memcpy(bytes, &frame, sizeof frame);
    if (len)
        memcpy(bytes + sizeof frame, message, len);
    schedule((struct occurrence){.at = w.now + delay(),
                                 .what = TO_SERVER,
                                 .who = link,
                                 .bytes = bytes,
                                 .len = sizeof frame + len});
}

int32_t http2_call(struct http2 *h, const char *path, const void *message, size_t len,
                   bool stays_open, void *call)
{
    (void)stays_open;
    if (h->streams + 1 == 4096)
        return -1;
    h->call[++h->streams] = call;
    send_request(h->link, h->streams, path, message, len);
    return h->streams;
}

bool http2_message(struct http2 *h, int32_t stream, const void *message, size_t len)
{
    send_request(h->link, stream, "/etcdserverpb.Watch/Watch", message, len);
    return true;
}

void http2_reset(struct http2 *h, int32_t stream)
{
    h->call[stream] = NULL;
}

bool http2_receive(struct http2 *h, const char *bytes, size_t len, const char **text)
{
    struct frame frame;
    (void)text;
    memcpy(&frame, bytes, sizeof frame);
    void *call = h->call[frame.stream];
    if (!call)
        return true;
    if (len > sizeof frame)
        h->events.on_message(h->ctx, call, bytes + sizeof frame, len - sizeof frame);
    if (frame.code < 0)
        return true;
    h->call[frame.stream] = NULL;
    h->events.on_end(h->ctx, call, &(struct http2_end){.code = frame.code, .text = frame.text});
    return true;
}

bool http2_flush(struct http2 *h)
{
    (void)h;
    return true;
}

bool http2_must_flush(const struct http2 *h)
{
    (void)h;
    return true;
}

bool http2_greeted(const struct http2 *h)
{
    (void)h;
    return true;
}

bool http2_closing(const struct http2 *h)
{
    (void)h;
    return false;
}

/* Messages of a watch do not overtake each other, not even those that a client reads late. */
static void send_message(unsigned link, int32_t stream, int code, const char *text,
                         const struct pb_writer *message, bool is_watch)
{
    struct frame frame = {.stream = stream, .code = code};
    if (!links[link].is_open)
        return;
    snprintf(frame.text, sizeof frame.text, "%s", text);
    char *bytes = malloc(sizeof frame + message->len);
    if (!bytes)
        abort();
    memcpy(bytes, &frame, sizeof frame);
    if (message->len)
        memcpy(bytes + sizeof frame, message->bytes, message->len);
    struct occurrence o = {.at = w.now + delay(),
                           .what = TO_CLIENT,
                           .who = link,
                           .bytes = bytes,
                           .len = sizeof frame + message->len};
    if (is_watch)
        keep_order(&links[link].to_client, &o);
    schedule(o);
}
