/* fuzz_head.c - the head of a request is read within its bytes; what is accepted has one meaning
 * only. */
#include "fuzz.h"

#include "request_parser.h"

const char *const fuzz_seeds[] = {
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/locks/a%2Fb/leases HTTP/1.1\r\nHost: [::1]:3009\r\nContent-Length: 2\r\n\r\n",
    "GET /v1/locks?prefix=a&limit=2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "PUT /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    NULL};
unsigned long fuzz_accepted, fuzz_refused;

static bool lies_within(struct piece piece, const char *text, size_t len)
{
    return piece.len == 0 || (piece.at >= text && piece.at + piece.len <= text + len);
}

/* Every line feed of an accepted head has its CR, and every CR its line feed. */
static bool lines_are_whole(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n' && (i == 0 || text[i - 1] != '\r'))
            return false;
        if (text[i] == '\r' && (i + 1 == len || text[i + 1] != '\n'))
            return false;
    }
    return true;
}

static void check_accepted(const struct request_head *head, const char *text, size_t len)
{
    size_t lengths = 0;
    MUST(lines_are_whole(text, len) && !memchr(text, 0, len));
    MUST(lies_within(head->method, text, len) && lies_within(head->path, text, len));
    MUST(lies_within(head->query, text, len) && lies_within(head->host, text, len));
    MUST(head->path.len > 0 && head->path.at[0] == '/');
    MUST(head->is_http10 || head->host.len > 0);
    MUST(!request_head_field(head, "transfer-encoding"));
    for (size_t i = 0; i < head->field_count; i++) {
        MUST(lies_within(head->fields[i].name, text, len) &&
             lies_within(head->fields[i].value, text, len));
        lengths += piece_is_caseless(head->fields[i].name, "content-length");
    }
    MUST(lengths <= 1 && (lengths == 1 || head->body_len == 0));
}

static void check_decoding(struct piece piece)
{
    char out[64];
    size_t len = 0;
    if (piece_decode(piece, out, sizeof out, &len))
        MUST(len < sizeof out && strlen(out) == len && len <= piece.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* exactly as large as it is */
    struct request_head head;
    const char *why = NULL;
    MUST(text);
    memcpy(text, data, size);
    size_t end = request_head_end(text, size);
    MUST(end <= size);
    int status = request_head_read(&head, text, end ? end : size, &why);
    MUST(status == 0 || (status >= 400 && status < 600 && why));
    MUST(status != 0 || end > 0);
    if (status == 0)
        check_accepted(&head, text, end);
    check_decoding((struct piece){text, size});
    status == 0 ? fuzz_accepted++ : fuzz_refused++;
    free(text);
    return 0;
}
