/* transcript_grpc.c - calls over HTTP/2, as etcd takes them: a made-up server of libnghttp2 for
 * each connection, so the frames are real ones.
 *
 *     EXPECT N STREAM SERVICE/METHOD MESSAGE   the engine sends a message; with "...", more follow
 *     SEND N STREAM MESSAGE                    the server's reply
 *     END N STREAM CODE TEXT                   the server ends the call
 *
 * Messages are as in protobuf_text.h. */
#include "protobuf_text.h"
#include "transcript_dialect.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 64, FRAME_HEAD = 5 /* bytes before a message: a flag and its length */ };

struct call {
    char path[64];
    unsigned char in[TRANSCRIPT_BYTES]; /* an incomplete message */
    size_t in_len;
    bool is_answered;
};

struct answer {
    const char *bytes;
    size_t len;
};

static struct connection {
    unsigned number;
    nghttp2_session *session;
    struct call call[STREAMS];
} connections[TRANSCRIPT_CONNECTIONS];

static struct call *call_of(struct connection *c, int32_t stream)
{
    assert(stream > 0 && stream / 2 < STREAMS);
    return &c->call[stream / 2];
}

/* ---- What the engine sends ---- */

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *ctx)
{
    struct call *call = call_of(ctx, frame->hd.stream_id);
    (void)session;
    (void)flags;
    if (name_len != 5 || memcmp(name, ":path", 5) != 0)
        return 0;
    const uint8_t *dot = memchr(value, '.', len);
    const uint8_t *from = dot ? dot + 1 : value;
    snprintf(call->path, sizeof call->path, "%.*s", (int)(value + len - from), (const char *)from);
    return 0;
}

static size_t whole_length(const struct call *call)
{
    const unsigned char *head = call->in;
    if (call->in_len < FRAME_HEAD)
        return SIZE_MAX;
    return FRAME_HEAD +
           ((size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4]);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t len, void *ctx)
{
    struct connection *c = ctx;
    struct call *call = call_of(c, stream);
    (void)session;
    (void)flags;
    assert(call->in_len + len <= sizeof call->in);
    memcpy(call->in + call->in_len, bytes, len);
    call->in_len += len;

    for (size_t whole; (whole = whole_length(call)) <= call->in_len;) {
        note("EXPECT %u %d %s ", c->number, stream, call->path);
        protobuf_print(call->in + FRAME_HEAD, whole - FRAME_HEAD);
        note("\n");
        call->in_len -= whole;
        memmove(call->in, call->in + whole, call->in_len);
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct connection *c = ctx;
    (void)session;
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        note("EXPECT %u %d RESET\n", c->number, frame->hd.stream_id);
    return 0;
}

static void open_session(struct connection *c)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_server_new(&c->session, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0);
}

static void reset(unsigned connection)
{
    assert(connection < TRANSCRIPT_CONNECTIONS);
    struct connection *c = &connections[connection];
    nghttp2_session_del(c->session);
    memset(c, 0, sizeof *c);
    c->number = connection;
}

static void sent(unsigned connection, const char *bytes, size_t len)
{
    struct connection *c = &connections[connection];
    if (!c->session)
        open_session(c);
    ssize_t taken = nghttp2_session_mem_recv(c->session, (const uint8_t *)bytes, len);
    if (taken != (ssize_t)len)
        note("EXPECT %u NONSENSE\n", connection);
}

/* ---- What the server sends ---- */

static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct answer *answer = source->ptr;
    size_t part = answer->len < room ? answer->len : room;
    (void)session;
    (void)stream;
    (void)ctx;
    memcpy(to, answer->bytes, part);
    answer->bytes += part;
    answer->len -= part;
    *flags = answer->len ? 0 : NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return (ssize_t)part;
}

static nghttp2_nv field(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static void submit_head(struct connection *c, int32_t stream)
{
    struct call *call = call_of(c, stream);
    nghttp2_nv head[] = {field(":status", "200"), field("content-type", "application/grpc")};
    if (!call->is_answered)
        nghttp2_submit_headers(c->session, NGHTTP2_FLAG_NONE, stream, NULL, head, 2, NULL);
    call->is_answered = true;
}

/* Takes all that the server has to send. */
static long drain(const struct connection *c, char bytes[TRANSCRIPT_BYTES])
{
    size_t len = 0;
    const uint8_t *part;
    for (ssize_t got; (got = nghttp2_session_mem_send(c->session, &part)) > 0;) {
        assert(len + (size_t)got <= TRANSCRIPT_BYTES);
        memcpy(bytes + len, part, (size_t)got);
        len += (size_t)got;
    }
    return (long)len;
}

static long make_message(struct connection *c, int32_t stream, const char *text,
                         char bytes[TRANSCRIPT_BYTES])
{
    char message[TRANSCRIPT_BYTES] = {0};
    long len = protobuf_make(text, message + FRAME_HEAD, sizeof message - FRAME_HEAD);
    if (len < 0)
        return -2;
    for (int i = 0; i < 4; i++)
        message[1 + i] = (char)(len >> 8 * (3 - i));

    struct answer answer = {message, FRAME_HEAD + (size_t)len};
    nghttp2_data_provider provider = {.source.ptr = &answer, .read_callback = read_answer};
    submit_head(c, stream);
    nghttp2_submit_data(c->session, NGHTTP2_FLAG_NONE, stream, &provider);
    return drain(c, bytes);
}

static long make_end(struct connection *c, int32_t stream, const char *text,
                     char bytes[TRANSCRIPT_BYTES])
{
    char code[16];
    size_t digits = strcspn(text, " ");
    snprintf(code, sizeof code, "%.*s", (int)digits, text);
    const char *words = text + digits + strspn(text + digits, " ");
    nghttp2_nv trailer[] = {field("grpc-status", code), field("grpc-message", words)};
    submit_head(c, stream);
    nghttp2_submit_trailer(c->session, stream, trailer, 2);
    return drain(c, bytes);
}

static long make(const char *step, unsigned connection, const char *text,
                 char bytes[TRANSCRIPT_BYTES])
{
    struct connection *c = &connections[connection];
    char *rest;
    int32_t stream = (int32_t)strtol(text, &rest, 10);
    bool is_message = strcmp(step, "SEND") == 0, is_end = strcmp(step, "END") == 0;
    if (!is_message && !is_end)
        return -1;
    if (!c->session || stream <= 0)
        return -2;
    rest += strspn(rest, " ");
    return is_message ? make_message(c, stream, rest, bytes) : make_end(c, stream, rest, bytes);
}

const struct dialect grpc_dialect = {.reset = reset, .sent = sent, .make = make};
