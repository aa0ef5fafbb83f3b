/* head.c - reads the head of a request: a request line, fields, an empty line, each ended by CR LF and nothing else. */
#include "head.h"
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct reading {
    const char *at, *end;
    const char *why;
};

static bool is_token(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
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

size_t head_end(const char *text, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] != '\n')
            continue;
        if (text[i + 1] == '\n')
            return i + 2;
        if (text[i + 1] == '\r' && i + 2 < len && text[i + 2] == '\n')
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

const struct piece *head_field(const struct head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (piece_is_caseless(head->fields[i].name, name))
            return &head->fields[i].value;
    return NULL;
}

static size_t count_fields(const struct head *head, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < head->field_count; i++)
        count += piece_is_caseless(head->fields[i].name, name);
    return count;
}

/* A line without its CR LF. */
static bool take_line(struct reading *r, struct piece *line)
{
    const char *feed = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!feed || feed == r->at || feed[-1] != '\r')
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

static int read_target(struct reading *r, struct head *head, struct piece target)
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
    head->query = mark ? (struct piece){mark + 1, target.len - path - 1} : (struct piece){target.at + path, 0};
    return 0;
}

static int read_request_line(struct reading *r, struct head *head)
{
    struct piece line;
    if (!take_line(r, &line))
        return refuse(r, 400, "the request line does not end with CR LF, or holds a control character");
    head->method = take_word(&line, is_token);
    if (head->method.len == 0 || head->method.len > 16 || !take_blank(&line))
        return refuse(r, 400, "the request line has no method");
    struct piece target = take_word(&line, is_visible);
    if (!take_blank(&line))
        return refuse(r, 400, "the request line is not METHOD TARGET VERSION");
    if (piece_is(line, "HTTP/1.0"))
        head->old = true;
    else if (line.len == 8 && memcmp(line.at, "HTTP/", 5) == 0 && !piece_is(line, "HTTP/1.1"))
        return refuse(r, 505, "the version of HTTP must be 1.1");
    else if (!piece_is(line, "HTTP/1.1"))
        return refuse(r, 400, "the request line does not end with a version of HTTP");
    return read_target(r, head, target);
}

static bool is_value(char c)
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

static int read_field(struct reading *r, struct head *head, struct piece line)
{
    if (line.at[0] == ' ' || line.at[0] == '\t')
        return refuse(r, 400, "a header field that goes on in the next line is not accepted");
    if (head->field_count == HEAD_FIELDS_MAX)
        return refuse(r, 431, "there are too many header fields");
    struct head_field *field = &head->fields[head->field_count++];
    field->name = take_word(&line, is_token);
    if (field->name.len == 0 || line.len == 0 || line.at[0] != ':')
        return refuse(r, 400, "a header field is not NAME: VALUE");
    if (piece_is_caseless(field->name, "content_length") || piece_is_caseless(field->name, "transfer_encoding"))
        return refuse(r, 400, "a header field looks like one that frames the body"); /* CGI takes _ for - */
    line.at++;
    line.len--;
    while (line.len > 0 && (line.at[0] == ' ' || line.at[0] == '\t'))
        line.at++, line.len--;
    while (line.len > 0 && (line.at[line.len - 1] == ' ' || line.at[line.len - 1] == '\t'))
        line.len--;
    for (size_t i = 0; i < line.len; i++)
        if (!is_value(line.at[i]))
            return refuse(r, 400, "a header field holds a control character");
    field->value = line;
    return 0;
}

static int read_fields(struct reading *r, struct head *head)
{
    for (;;) {
        struct piece line;
        if (!take_line(r, &line))
            return refuse(r, 400, "a line of the head does not end with CR LF, or holds a control character");
        if (line.len == 0)
            return r->at == r->end ? 0 : refuse(r, 400, "the head does not end where it should");
        int status = read_field(r, head, line);
        if (status != 0)
            return status;
    }
}

/* Digits only, once only: "+5", "5, 5" and "0x5" are what others read differently. */
static int read_length(struct reading *r, struct head *head)
{
    const struct piece *length = head_field(head, "content-length");
    if (head_field(head, "transfer-encoding"))
        return refuse(r, 411, "a body must come with its Content-Length; transfer codings are not accepted");
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
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._:[]", c));
}

static int read_host(struct reading *r, struct head *head)
{
    const struct piece *host = head_field(head, "host");
    size_t count = count_fields(head, "host");
    if (count > 1 || (count == 0 && !head->old))
        return refuse(r, 400, "there must be one Host");
    if (!host)
        return 0;
    struct piece rest = *host;
    take_word(&rest, is_host);
    if (host->len == 0 || rest.len > 0)
        return refuse(r, 400, "Host is not a name with a port");
    head->host = *host;
    return 0;
}

/* Does a list of words contain one? */
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

static int read_manners(struct reading *r, struct head *head)
{
    const struct piece *connection = head_field(head, "connection"), *expect = head_field(head, "expect");
    head->keep_alive = head->old ? lists(connection, "keep-alive") : !lists(connection, "close");
    if (count_fields(head, "connection") > 1)
        head->keep_alive = false;
    if (head_field(head, "upgrade") && lists(connection, "upgrade"))
        head->keep_alive = false; /* not upgraded: what follows would be another protocol */
    if (expect && !piece_is_caseless(*expect, "100-continue"))
        return refuse(r, 417, "only 100-continue can be expected");
    head->expects = expect && !head->old && head->body_len > 0;
    if (count_fields(head, "authorization") > 1 || count_fields(head, "idempotency-key") > 1)
        return refuse(r, 400, "a header field is there twice");
    return 0;
}

int head_read(struct head *head, const char *text, size_t len, const char **why)
{
    struct reading r = {.at = text, .end = text + len};
    *head = (struct head){0};
    int status = read_request_line(&r, head);
    if (status == 0)
        status = read_fields(&r, head);
    if (status == 0)
        status = read_length(&r, head);
    if (status == 0)
        status = read_host(&r, head);
    if (status == 0)
        status = read_manners(&r, head);
    *why = r.why;
    return status;
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
