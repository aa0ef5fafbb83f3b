/* fuzz_response.c - any bytes as HTTP/1.1 responses: whole and in pieces they mean the same, bounds
 * are kept, and every reader stops or goes on. */
#include "engines/kit/http_response.h"
#include "fuzz/fuzz.h"

enum { BODY_MAX = 256 };

const char *const fuzz_seeds[] = {
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Consul-Index: 7\r\n\r\nhello",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\nHTTP/1.1 204 \r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    NULL,
};
unsigned long fuzz_accepted, fuzz_refused;

struct meaning {
    unsigned responses, fields;
    bool bad;
    uint64_t hash;
};

static void mix(struct meaning *m, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        m->hash = (m->hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
}

static void note_field(void *ctx, const char *name, const char *value)
{
    struct meaning *m = ctx;
    m->fields++;
    mix(m, name, strlen(name));
    mix(m, value, strlen(value));
}

/* Reads all responses, in pieces of that many bytes; 0: at once. */
static struct meaning read_all(const uint8_t *data, size_t size, size_t step)
{
    struct meaning m = {0};
    struct http_response r = {.body_max = BODY_MAX, .on_field = note_field, .ctx = &m};
    size_t at = 0;
    while (at < size && r.stage != HTTP_BAD) {
        size_t part = step && step < size - at ? step : size - at;
        size_t taken = http_response_take(&r, (const char *)data + at, part);
        MUST(taken <= part);
        MUST(taken > 0 || r.stage == HTTP_BAD);
        at += taken;
        MUST(taken == part || r.stage == HTTP_WHOLE || r.stage == HTTP_BAD);
        if (r.stage != HTTP_WHOLE)
            continue;
        MUST(r.status >= 200 && r.status <= 599 && r.body_len <= BODY_MAX);
        MUST(!r.body || r.body[r.body_len] == '\0');
        mix(&m, r.body, r.body_len);
        m.responses++;
        http_response_next(&r);
    }
    m.bad = r.stage == HTTP_BAD;
    MUST(!m.bad || r.flaw);
    http_response_free(&r);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meaning whole = read_all(data, size, 0);
    for (size_t step = 1; step <= 7; step += 3) {
        struct meaning parts = read_all(data, size, step);
        MUST(parts.responses == whole.responses && parts.bad == whole.bad);
        MUST(parts.fields == whole.fields && parts.hash == whole.hash);
    }
    fuzz_accepted += whole.responses > 0;
    fuzz_refused += whole.bad;
    return 0;
}
