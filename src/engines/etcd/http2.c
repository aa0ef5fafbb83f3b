/* http2.c - gRPC calls over one HTTP/2 connection, using libnghttp2. */
#include "http2.h"

#include "block_pool.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_HEAD = 5, /* bytes before a gRPC message: one flag and a length */
    MESSAGE_MAX = 64 << 20,
    STREAM_WINDOW = 1 << 20,
    CONNECTION_WINDOW = 16 << 20,
    TEXT_MAX = 256
};

struct bytes {
    char *at;
    size_t len, room;
};

struct stream {
    struct stream *next, **link;
    void *call;
    int32_t id;
    bool ended;       /* the client has sent its last message */
    bool reset;       /* reset by http2_reset(): its events are ignored */
    struct bytes out; /* bytes to send; nghttp2 has taken the first `sent` of them */
    size_t sent;
    struct bytes in; /* start of a message that is not complete */
    struct http2_end end;
    char text[TEXT_MAX];
};

struct http2 {
    nghttp2_session *session;
    struct block_pool pool;
    nghttp2_mem memory; /* nghttp2 takes its blocks from `pool` */
    struct http2_events events;
    void *ctx;
    const char *host, *token;
    struct stream *streams;
    bool closing, greeted;
    bool failed;    /* a message is malformed, or memory ran out */
    bool has_reset; /* a reset waits to be sent */
    size_t unsent;  /* number of bytes in `out` of all streams that nghttp2 has not taken */
};

/* ---- Memory ---- */

static void *take_memory(size_t size, void *pool)
{
    return block_alloc(pool, size);
}

static void *take_zeroed_memory(size_t count, size_t size, void *pool)
{
    return size && count > SIZE_MAX / size ? NULL : block_calloc(pool, count * size);
}

static void *resize_memory(void *bytes, size_t size, void *pool)
{
    return block_realloc(pool, bytes, size);
}

static void give_memory(void *bytes, void *pool)
{
    block_free(pool, bytes);
}

static bool append(struct http2 *h, struct bytes *to, const void *bytes, size_t len)
{
    if (to->room - to->len < len) {
        size_t room = to->room ? to->room : 256;
        while (room - to->len < len)
            room *= 2;
        char *at = block_realloc(&h->pool, to->at, room);
        if (!at)
            return false;
        to->at = at;
        to->room = room;
    }

    if (len)
        memcpy(to->at + to->len, bytes, len);
    to->len += len;
    return true;
}

/* ---- Streams ---- */

static void drop_stream(struct http2 *h, struct stream *stream)
{
    assert(stream->in.len <= stream->in.room);
    h->unsent -= stream->out.len - stream->sent;
    *stream->link = stream->next;
    if (stream->next)
        stream->next->link = stream->link;
    block_free(&h->pool, stream->out.at);
    block_free(&h->pool, stream->in.at);
    block_free(&h->pool, stream);
}

static struct stream *make_stream(struct http2 *h, void *call)
{
    struct stream *stream = block_calloc(&h->pool, sizeof *stream);
    if (!stream)
        return NULL;

    stream->call = call;
    stream->end = (struct http2_end){.code = -1, .text = stream->text};
    stream->next = h->streams;
    stream->link = &h->streams;
    if (h->streams)
        h->streams->link = &stream->next;
    h->streams = stream;
    return stream;
}

/* nghttp2 does not know a stream before its first frame is sent; until then only our list has it.
 */
static struct stream *stream_of(struct http2 *h, int32_t id)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(h->session, id);
    if (stream)
        return stream;
    for (stream = h->streams; stream && stream->id != id;)
        stream = stream->next;
    return stream;
}

/* ---- Called by nghttp2 ---- */

static ssize_t take_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                        uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct stream *stream = source->ptr;
    size_t left = stream->out.len - stream->sent, len = left < room ? left : room;
    struct http2 *h = ctx;
    (void)session, (void)id;
    if (!len && !stream->ended)
        return NGHTTP2_ERR_DEFERRED;

    if (len)
        memcpy(to, stream->out.at + stream->sent, len);
    stream->sent += len;
    h->unsent -= len;
    bool all = stream->sent == stream->out.len;
    if (all)
        stream->sent = stream->out.len = 0;
    if (all && stream->ended)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static uint32_t message_length(const char *head)
{
    const unsigned char *b = (const unsigned char *)head;
    return (uint32_t)b[1] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 8 | b[4];
}

/* Passes on all complete messages. */
static void take_messages(struct http2 *h, struct stream *stream)
{
    assert(stream->in.len <= stream->in.room);
    size_t at = 0;
    while (stream->in.len - at >= FRAME_HEAD && !stream->reset) {
        uint32_t len = message_length(stream->in.at + at);
        bool compressed = stream->in.at[at] != 0;
        if (compressed || len > MESSAGE_MAX) {
            h->failed = true;
            return;
        }
        if (stream->in.len - at - FRAME_HEAD < len)
            break;
        h->events.on_message(h->ctx, stream->call, stream->in.at + at + FRAME_HEAD, len);
        at += FRAME_HEAD + len;
    }

    memmove(stream->in.at, stream->in.at + at, stream->in.len - at);
    stream->in.len -= at;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t len, void *ctx)
{
    struct http2 *h = ctx;
    struct stream *stream = stream_of(h, id);
    (void)session, (void)flags;
    if (!stream || stream->reset || len == 0)
        return 0;
    if (stream->end.not_grpc)
        return 0;
    if (!append(h, &stream->in, bytes, len))
        return NGHTTP2_ERR_CALLBACK_FAILURE;

    take_messages(h, stream);
    return h->failed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static bool is_header(const uint8_t *name, size_t len, const char *wanted)
{
    return len == strlen(wanted) && memcmp(name, wanted, len) == 0;
}

/* Decodes the text of a gRPC status: percent-encoding covers only bytes that cannot be printed. */
static void copy_text(char to[TEXT_MAX], const uint8_t *text, size_t len)
{
    size_t out = 0;
    for (size_t i = 0; i < len && out + 1 < TEXT_MAX; i++)
        to[out++] = text[i] >= ' ' && text[i] <= '~' ? (char)text[i] : '?';
    to[out] = '\0';
}

static int number_of(const uint8_t *value, size_t len)
{
    int number = 0;
    for (size_t i = 0; i < len && i < 4; i++)
        number = number * 10 + (value[i] - '0');
    return number;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *ctx)
{
    struct http2 *h = ctx;
    struct stream *stream = stream_of(h, frame->hd.stream_id);
    (void)session, (void)flags;
    if (!stream)
        return 0;

    if (is_header(name, name_len, ":status"))
        stream->end.not_grpc |= !is_header(value, len, "200");
    else if (is_header(name, name_len, "content-type"))
        stream->end.not_grpc |= len < 16 || memcmp(value, "application/grpc", 16) != 0;
    else if (is_header(name, name_len, "grpc-status"))
        stream->end.code = number_of(value, len);
    else if (is_header(name, name_len, "grpc-message"))
        copy_text(stream->text, value, len);

    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *ctx)
{
    struct http2 *h = ctx;
    struct stream *stream = stream_of(h, id);
    (void)session;
    if (!stream)
        return 0;

    stream->end.not_processed = error == NGHTTP2_REFUSED_STREAM;
    if (!stream->reset)
        h->events.on_end(h->ctx, stream->call, &stream->end);
    drop_stream(h, stream);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct http2 *h = ctx;
    (void)session;
    h->closing |= frame->hd.type == NGHTTP2_GOAWAY;
    h->greeted |= frame->hd.type == NGHTTP2_SETTINGS;
    return 0;
}

/* ---- Opening and closing ---- */

static int start_session(struct http2 *h)
{
    nghttp2_session_callbacks *calls;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
    };
    if (nghttp2_session_callbacks_new(&calls) != 0)
        return -1;

    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    int error = nghttp2_session_client_new3(&h->session, calls, h, NULL, &h->memory);
    nghttp2_session_callbacks_del(calls);
    if (error)
        return error;

    error = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, 2);
    return error ? error
                 : nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                         CONNECTION_WINDOW);
}

struct http2 *http2_open(const struct http2_events *events, void *ctx, const char *host,
                         const char *token)
{
    assert(events->send && events->on_message && events->on_end && host && token);
    struct http2 *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;

    h->memory =
        (nghttp2_mem){&h->pool, take_memory, give_memory, take_zeroed_memory, resize_memory};
    h->events = *events;
    h->ctx = ctx;
    h->host = host;
    h->token = token;
    if (start_session(h) != 0) {
        http2_close(h);
        return NULL;
    }
    return h;
}

void http2_close(struct http2 *h)
{
    if (!h)
        return;

    while (h->streams)
        drop_stream(h, h->streams);
    nghttp2_session_del(h->session);
    block_pool_end(&h->pool);
    free(h);
}

/* ---- Calls ---- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static bool append_message(struct http2 *h, struct stream *stream, const void *message, size_t len)
{
    char head[FRAME_HEAD] = {0, (char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len};
    size_t before = stream->out.len;
    bool done = append(h, &stream->out, head, sizeof head) && append(h, &stream->out, message, len);
    h->unsent += stream->out.len - before;
    return done;
}

int32_t http2_call(struct http2 *h, const char *path, const void *message, size_t len,
                   bool stays_open, void *call)
{
    assert(path[0] == '/' && (message || !len));
    struct stream *stream = make_stream(h, call);
    if (!stream)
        return -1;

    nghttp2_nv headers[] = {
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", path),
        header(":authority", h->host),
        header("content-type", "application/grpc"),
        header("te", "trailers"),
        /* Asks a member that has no leader to refuse at once. */
        header("hasleader", "true"),
        header("token", h->token),
    };
    size_t count = sizeof headers / sizeof *headers - (h->token[0] ? 0 : 1);
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = take_out};
    stream->ended = !stays_open;
    stream->id = append_message(h, stream, message, len)
                     ? nghttp2_submit_request(h->session, NULL, headers, count, &provider, stream)
                     : -1;
    if (stream->id < 0) {
        drop_stream(h, stream);
        return -1;
    }
    return stream->id;
}

bool http2_message(struct http2 *h, int32_t id, const void *message, size_t len)
{
    assert(id > 0);
    struct stream *stream = stream_of(h, id);
    if (!stream || !append_message(h, stream, message, len))
        return false;

    nghttp2_session_resume_data(h->session, id);
    return true;
}

void http2_reset(struct http2 *h, int32_t id)
{
    assert(id > 0);
    struct stream *stream = stream_of(h, id);
    if (!stream)
        return;

    stream->reset = h->has_reset = true;
    nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
}

/* ---- Bytes ---- */

bool http2_receive(struct http2 *h, const char *bytes, size_t len, const char **text)
{
    assert(bytes || !len);
    ssize_t taken = nghttp2_session_mem_recv(h->session, (const uint8_t *)bytes, len);
    if (taken < 0 || h->failed) {
        int error = taken < 0 ? (int)taken : NGHTTP2_ERR_PROTO;
        bool is_other_protocol =
            taken == NGHTTP2_ERR_BAD_CLIENT_MAGIC || taken == NGHTTP2_ERR_PROTO;
        *text = is_other_protocol ? "the server does not speak HTTP/2" : nghttp2_strerror(error);
        return false;
    }
    return true;
}

bool http2_flush(struct http2 *h)
{
    assert(h->session);
    const uint8_t *bytes;
    ssize_t len;
    h->has_reset = false;
    while ((len = nghttp2_session_mem_send(h->session, &bytes)) > 0)
        h->events.send(h->ctx, bytes, (size_t)len);
    return len == 0 &&
           (nghttp2_session_want_read(h->session) || nghttp2_session_want_write(h->session));
}

bool http2_must_flush(const struct http2 *h)
{
    bool is_ending = !nghttp2_session_check_request_allowed(h->session);
    return h->has_reset || h->unsent > 0 || is_ending;
}

bool http2_greeted(const struct http2 *h)
{
    return h->greeted;
}

bool http2_closing(const struct http2 *h)
{
    return h->closing;
}
