/* request_parser.c - parses the head of a request: a request line, fields and an empty line,
 * each ended by CR LF and nothing else. */
#include "request_parser.h"
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct reading {
    const char *at, *end;
    const char *why;
};

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_token(char c)
{
    if (is_alphanumeric(c))
        return true;
    return c && strchr("!#$%&'*+-.^_`|~", c);
}

static bool is_visible(char c)
{
    return c > 0x20 && c < 0x7f;
}

static int refuse(struct reading *r, int status, const char *why)
{
    r->why = why;
    return status;
}

size_t request_head_end(const char *text, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] != '\n')
            continue;
        if (text[i + 1] == '\n')
            return i + 2;
        bool is_empty_line = text[i + 1] == '\r' && i + 2 < len && text[i + 2] == '\n';
        if (is_empty_line)
            return i + 3;
    }
    return 0;
}

bool piece_is(struct piece piece, const char *text)
{
    return piece.len == strlen(text) && memcmp(piece.at, text, piece.len) == 0;
}

bool piece_is_caseless(struct piece piece, const char *text)
{
    return piece.len == strlen(text) && strncasecmp(piece.at, text, piece.len) == 0;
}

const struct piece *request_head_field(const struct request_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (piece_is_caseless(head->fields[i].name, name))
            return &head->fields[i].value;
    return NULL;
}

static size_t count_fields(const struct request_head *head, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < head->field_count; i++)
        count += piece_is_caseless(head->fields[i].name, name);
    return count;
}

/* Takes a line, without its CR LF. */
static bool take_line(struct reading *r, struct piece *line)
{
    const char *feed = memchr(r->at, '\n', (size_t)(r->end - r->at));

    bool has_end = feed && feed > r->at && feed[-1] == '\r';
    if (!has_end)
        return false;

    *line = (struct piece){r->at, (size_t)(feed - 1 - r->at)};
    r->at = feed + 1;
    return memchr(line->at, '\r', line->len) == NULL && memchr(line->at, 0, line->len) == NULL;
}

static struct piece take_word(struct piece *line, bool (*belongs)(char))
{
    struct piece word = {line->at, 0};

    while (word.len < line->len && belongs(line->at[word.len]))
        word.len++;
    line->at += word.len;
    line->len -= word.len;
    return word;
}

static bool take_blank(struct piece *line)
{
    if (line->len == 0 || line->at[0] != ' ')
        return false;
    line->at++;
    line->len--;
    return true;
}

static int read_target(struct reading *r, struct request_head *head, struct piece target)
{
    if (target.len > HEAD_TARGET_MAX)
        return refuse(r, 414, "the target is too long");
    if (target.len == 0 || target.at[0] != '/')
        return refuse(r, 400, "the target must begin with a slash");
    if (memchr(target.at, '#', target.len) || memchr(target.at, '\\', target.len))
        return refuse(r, 400, "the target has a character that must be escaped");

    const char *mark = memchr(target.at, '?', target.len);
    size_t path = mark ? (size_t)(mark - target.at) : target.len;
    head->path = (struct piece){target.at, path};
    head->query = mark ? (struct piece){mark + 1, target.len - path - 1}
                       : (struct piece){target.at + path, 0};

    return 0;
}

static int read_request_line(struct reading *r, struct request_head *head)
{
    struct piece line;

    if (!take_line(r, &line))
        return refuse(r, 400,
                      "the request line does not end with CR LF, or holds a control character");

    head->method = take_word(&line, is_token);
    bool has_no_method = head->method.len == 0 || head->method.len > 16 || !take_blank(&line);
    if (has_no_method)
        return refuse(r, 400, "the request line has no method");

    struct piece target = take_word(&line, is_visible);
    if (!take_blank(&line))
        return refuse(r, 400, "the request line is not METHOD TARGET VERSION");
    if (piece_is(line, "HTTP/1.0"))
        head->is_http10 = true;
    else if (line.len == 8 && memcmp(line.at, "HTTP/", 5) == 0 && !piece_is(line, "HTTP/1.1"))
        return refuse(r, 505, "the version of HTTP must be 1.1");
    else if (!piece_is(line, "HTTP/1.1"))
        return refuse(r, 400, "the request line does not end with a version of HTTP");
    return read_target(r, head, target);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_value(char c)
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

static int read_field(struct reading *r, struct request_head *head, struct piece line)
{
    if (is_blank(line.at[0]))
        return refuse(r, 400, "a header field must not continue on the next line");
    if (head->field_count == HEAD_FIELDS_MAX)
        return refuse(r, 431, "there are too many header fields");

    struct request_field *field = &head->fields[head->field_count++];
    field->name = take_word(&line, is_token);
    bool has_value = field->name.len > 0 && line.len > 0 && line.at[0] == ':';
    if (!has_value)
        return refuse(r, 400, "a header field is not NAME: VALUE");
    /* CGI programs read _ as - */
    if (piece_is_caseless(field->name, "content_length") ||
        piece_is_caseless(field->name, "transfer_encoding"))
        return refuse(r, 400, "a header field looks like one that frames the body");

    line.at++;
    line.len--;
    while (line.len > 0 && is_blank(line.at[0]))
        line.at++, line.len--;
    while (line.len > 0 && is_blank(line.at[line.len - 1]))
        line.len--;
    for (size_t i = 0; i < line.len; i++)
        if (!is_value(line.at[i]))
            return refuse(r, 400, "a header field holds a control character");
    field->value = line;

    return 0;
}

static int read_fields(struct reading *r, struct request_head *head)
{
    for (;;) {
        struct piece line;
        if (!take_line(r, &line))
            return refuse(
                r, 400, "a line of the head does not end with CR LF, or holds a control character");
        if (line.len == 0)
            return r->at == r->end ? 0 : refuse(r, 400, "bytes follow the end of the head");
        int status = read_field(r, head, line);
        if (status != 0)
            return status;
    }
}

/* Accepts digits only, and only one field: other parsers read "+5", "5, 5" and "0x5"
 * differently. */
static int read_length(struct reading *r, struct request_head *head)
{
    const struct piece *length = request_head_field(head, "content-length");

    if (request_head_field(head, "transfer-encoding"))
        return refuse(r, 411, "a body needs a Content-Length; transfer codings are not accepted");
    if (!length)
        return 0;
    if (count_fields(head, "content-length") > 1)
        return refuse(r, 400, "there is more than one Content-Length");
    if (length->len == 0 || length->len > 18)
        return refuse(r, 400, "Content-Length is not a number");

    for (size_t i = 0; i < length->len; i++) {
        if (length->at[i] < '0' || length->at[i] > '9')
            return refuse(r, 400, "Content-Length is not a number");
        head->body_len = head->body_len * 10 + (size_t)(length->at[i] - '0');
    }

    return 0;
}

static bool is_host(char c)
{
    return is_alphanumeric(c) || (c && strchr("-._:[]", c));
}

static int read_host(struct reading *r, struct request_head *head)
{
    const struct piece *host = request_head_field(head, "host");
    size_t count = count_fields(head, "host");

    bool is_ambiguous = count > 1 || (count == 0 && !head->is_http10);
    if (is_ambiguous)
        return refuse(r, 400, "exactly one Host is needed");
    if (!host)
        return 0;

    struct piece rest = *host;
    take_word(&rest, is_host);
    if (host->len == 0 || rest.len > 0)
        return refuse(r, 400, "Host is not a name with a port");

    head->host = *host;

    return 0;
}

/* Returns true if a comma-separated list contains the word. */
static bool lists(const struct piece *list, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; list && i + len <= list->len; i++) {
        bool begins = i == 0 || strchr(", \t", list->at[i - 1]);
        bool ends = i + len == list->len || strchr(", \t", list->at[i + len]);
        if (begins && ends && strncasecmp(list->at + i, word, len) == 0)
            return true;
    }

    return false;
}

static int read_connection_fields(struct reading *r, struct request_head *head)
{
    const struct piece *connection = request_head_field(head, "connection"),
                       *expect = request_head_field(head, "expect");

    head->keep_alive =
        head->is_http10 ? lists(connection, "keep-alive") : !lists(connection, "close");
    if (count_fields(head, "connection") > 1)
        head->keep_alive = false;
    /* refused: what follows an upgrade would be another protocol */
    if (request_head_field(head, "upgrade") && lists(connection, "upgrade"))
        head->keep_alive = false;
    if (expect && !piece_is_caseless(*expect, "100-continue"))
        return refuse(r, 417, "only 100-continue can be expected");

    head->expects_continue = expect && !head->is_http10 && head->body_len > 0;
    if (count_fields(head, "authorization") > 1 || count_fields(head, "idempotency-key") > 1)
        return refuse(r, 400, "a header field is given twice");
    return 0;
}

int request_head_read(struct request_head *head, const char *text, size_t len, const char **why)
{
    struct reading r = {.at = text, .end = text + len};
    *head = (struct request_head){0};
    int status = read_request_line(&r, head);

    if (status == 0)
        status = read_fields(&r, head);
    if (status == 0)
        status = read_length(&r, head);
    if (status == 0)
        status = read_host(&r, head);
    if (status == 0)
        status = read_connection_fields(&r, head);

    *why = r.why;
    return status;
}

static struct piece moved(struct piece piece, const char *from, const char *to)
{
    return piece.at ? (struct piece){to + (piece.at - from), piece.len} : piece;
}

void request_head_copy(struct request_head *copy, const struct request_head *head, const char *from,
                       const char *to)
{
    copy->method = moved(head->method, from, to);
    copy->path = moved(head->path, from, to);
    copy->query = moved(head->query, from, to);
    copy->host = moved(head->host, from, to);
    for (size_t i = 0; i < head->field_count; i++)
        copy->fields[i] = (struct request_field){moved(head->fields[i].name, from, to),
                                                 moved(head->fields[i].value, from, to)};
    copy->field_count = head->field_count;
    copy->body_len = head->body_len;
    copy->is_http10 = head->is_http10;
    copy->keep_alive = head->keep_alive;
    copy->expects_continue = head->expects_continue;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool piece_decode(struct piece piece, char *out, size_t size, size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < piece.len; i++) {
        char c = piece.at[i];
        if (c == '%') {
            int high = i + 2 < piece.len ? hex(piece.at[i + 1]) : -1;
            int low = i + 2 < piece.len ? hex(piece.at[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == 0 || *len + 1 >= size)
            return false;
        out[(*len)++] = c;
    }

    out[*len] = 0;
    return true;
}
