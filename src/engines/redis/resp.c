/* resp.c - writes commands, and reads replies with hiredis' reader into an arena of our own. */
#include "resp.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARENA_CHUNK = 8192,
    ARENA_TIMES = 2, /* memory that a reply may take, in multiples of its largest size */
    SIMPLE_MOST = 63,
    SIMPLE_DIGITS = 18
};

/* ---- Commands ---- */

enum { NUMBER_MOST = 20 }; /* most digits of a number */
_Static_assert(RESP_FRAME_MAX == NUMBER_MOST + 5, "a letter, the length, and two ends of lines");

char *resp_command_grow(struct resp_command *c, size_t more)
{
    size_t room = c->room ? c->room : 512;
    assert(c->len <= c->room);

    while (room < c->len + more)
        room *= 2;
    char *bytes = c->failed ? NULL : realloc(c->bytes, room);
    c->failed = !bytes;
    if (!bytes)
        return NULL;

    c->bytes = bytes;
    c->room = room;
    return bytes + c->len;
}

/* Numbers are formatted by hand: a command has many, and with printf formatting took a third of the
 * whole time of a request. */
static inline unsigned count_digits(uint64_t number)
{
    for (unsigned digits = 0;; digits += 4, number /= 10000) {
        if (number < 100)
            return digits + (number < 10 ? 1 : 2);
        if (number < 10000)
            return digits + (number < 1000 ? 3 : 4);
    }
}

static inline char *put_digits(char *to, uint64_t number, unsigned digits)
{
    for (char *at = to + digits; at > to; number /= 10)
        *--at = (char)('0' + number % 10);
    return to + digits;
}

char *resp_put_number(char *to, uint64_t number)
{
    return put_digits(to, number, count_digits(number));
}

static inline char *put_end(char *to)
{
    memcpy(to, "\r\n", 2);
    return to + 2;
}

/* Writes a length or count: the letter, the number, the end of the line. */
static inline char *put_count(char *to, char letter, size_t count)
{
    *to++ = letter;
    if (count < 10) {
        *to++ = (char)('0' + count);
    } else if (count < 100) {
        *to++ = (char)('0' + count / 10);
        *to++ = (char)('0' + count % 10);
    } else {
        to = resp_put_number(to, count);
    }

    return put_end(to);
}

void resp_command_begin(struct resp_command *c, unsigned words)
{
    char *to = resp_command_room(c, RESP_FRAME_MAX);
    if (to)
        resp_command_end(c, put_count(to, '*', words));
}

void resp_command_words(struct resp_command *c, const char *bytes, size_t len)
{
    char *to = resp_command_room(c, len);
    if (!to)
        return;

    memcpy(to, bytes, len);
    c->len += len;
}

char *resp_put_word(char *to, const char *text, size_t len)
{
    to = put_count(to, '$', len);
    memcpy(to, text, len);
    return put_end(to + len);
}

void resp_command_word(struct resp_command *c, const char *text, size_t len)
{
    char *to = resp_command_room(c, len + RESP_FRAME_MAX);
    if (to)
        resp_command_end(c, resp_put_word(to, text, len));
}

void resp_command_text(struct resp_command *c, const char *text)
{
    resp_command_word(c, text, strlen(text));
}

void resp_command_joined(struct resp_command *c, const char *first, size_t first_len,
                         const char *second, size_t second_len)
{
    char *to = resp_command_room(c, first_len + second_len + RESP_FRAME_MAX);
    if (!to)
        return;

    to = put_count(to, '$', first_len + second_len);
    to = (char *)mempcpy(to, first, first_len);
    to = (char *)mempcpy(to, second, second_len);
    resp_command_end(c, put_end(to));
}

void resp_command_char(struct resp_command *c, char letter)
{
    char *to = resp_command_room(c, RESP_FRAME_MAX);
    if (!to)
        return;

    memcpy(to, "$1\r\n?\r\n", 7);
    to[4] = letter;
    c->len += 7;
}

void resp_command_number(struct resp_command *c, int64_t number)
{
    if (number >= 0 && number < 10) {
        resp_command_char(c, (char)('0' + number));
        return;
    }

    char *to = resp_command_room(c, NUMBER_MOST + RESP_FRAME_MAX);
    if (!to)
        return;

    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    unsigned digits = count_digits(size);
    to = put_count(to, '$', digits + (number < 0));
    if (number < 0)
        *to++ = '-';
    resp_command_end(c, put_end(put_digits(to, size, digits)));
}

void resp_command_add(struct resp_command *c, const struct resp_words *words)
{
    resp_command_words(c, words->bytes, words->len);
}

struct resp_words resp_words_of(const int64_t *numbers, unsigned count)
{
    struct resp_words words;
    struct resp_command c = {.bytes = words.bytes, .room = sizeof words.bytes};
    assert(count <= RESP_WORDS_MAX);

    for (unsigned i = 0; i < count; i++)
        resp_command_number(&c, numbers[i]);
    words.len = c.len;
    return words;
}

void resp_command_free(struct resp_command *c)
{
    free(c->bytes);
    *c = (struct resp_command){0};
}

/* ---- Replies ---- */

struct chunk {
    struct chunk *next;
    size_t used, room;
    max_align_t bytes[];
};

struct resp_reader {
    redisReader *reader;
    struct chunk *chunks; /* newest first; the oldest is kept */
    size_t allocated;     /* bytes of all chunks */
    size_t most;          /* longest reply in bytes */
    size_t unread;        /* bytes fed to hiredis since the last whole reply */
    const char *flaw;     /* reason why our own functions refused the bytes; NULL: none */
    const char *fresh;    /* bytes that hiredis has not seen yet, see read_simple() */
    size_t fresh_len;     /* number of bytes at `fresh`; 0 while hiredis has a part of a reply */
    struct resp_reply simple;
    char simple_text[SIMPLE_MOST + 1];
};

static void *take(struct resp_reader *r, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct chunk *c = r->chunks;

    if (!c || c->room - c->used < size) {
        size_t room = size > ARENA_CHUNK ? size : ARENA_CHUNK;
        r->flaw = r->allocated + room > ARENA_TIMES * r->most ? "a reply that is too long" : NULL;
        if (r->flaw || !(c = malloc(sizeof *c + room)))
            return NULL;
        *c = (struct chunk){.next = r->chunks, .room = room};
        r->chunks = c;
        r->allocated += room;
    }

    assert(c->used + size <= c->room);
    char *at = (char *)c->bytes + c->used;
    c->used += size;
    return at;
}

static void forget_replies(struct resp_reader *r)
{
    while (r->chunks && r->chunks->next) {
        struct chunk *c = r->chunks;
        assert(r->allocated >= c->room);
        r->chunks = c->next;
        r->allocated -= c->room;
        free(c);
    }

    if (r->chunks)
        r->chunks->used = 0;
}

/* Makes an object, and adds it to its list if it is part of one. */
static struct resp_reply *add(const redisReadTask *task, enum resp_type type)
{
    assert(task->privdata);
    struct resp_reply *resp = take(task->privdata, sizeof *resp);
    if (!resp)
        return NULL;

    *resp = (struct resp_reply){.type = type};
    struct resp_reply *list = task->parent ? task->parent->obj : NULL;
    if (list) {
        *(list->last ? &list->last->next : &list->first) = resp;
        list->last = resp;
        list->len++;
    }

    return resp;
}

static enum resp_type text_type(const redisReadTask *task)
{
    if (task->type == REDIS_REPLY_ERROR)
        return RESP_ERROR;
    return task->type == REDIS_REPLY_STATUS ? RESP_STATUS : RESP_TEXT;
}

static void *add_text(const redisReadTask *task, char *text, size_t len)
{
    struct resp_reader *r = task->privdata;
    if (memcmp(text + len, "\r\n", 2) != 0) { /* hiredis leaves these two bytes unchecked */
        r->flaw = "a text that is longer than it says";
        return NULL;
    }

    struct resp_reply *resp = add(task, text_type(task));
    char *copy = resp ? take(task->privdata, len + 1) : NULL;
    if (!copy)
        return NULL;

    memcpy(copy, text, len);
    copy[len] = 0;
    resp->text = copy;
    resp->len = len;
    return resp;
}

#if HIREDIS_MAJOR >= 1
static void *add_list(const redisReadTask *task, size_t items)
#else
static void *add_list(const redisReadTask *task, int items)
#endif
{
    /* no memory is reserved for an announced number: items are allocated as they arrive */
    (void)items;
    return add(task, RESP_LIST);
}

static void *add_number(const redisReadTask *task, long long value)
{
    struct resp_reply *resp = add(task, RESP_NUMBER);
    if (resp)
        resp->number = value;
    return resp;
}

static void *add_nil(const redisReadTask *task)
{
    return add(task, RESP_NIL);
}

static void free_nothing(void *object)
{
    (void)object; /* the arena is emptied as a whole */
}

#if HIREDIS_MAJOR >= 1
static void *refuse_double(const redisReadTask *task, double value, char *text, size_t len)
{
    (void)task, (void)value, (void)text, (void)len;
    return NULL; /* RESP3, which this client never asks for */
}

static void *refuse_bool(const redisReadTask *task, int value)
{
    (void)task, (void)value;
    return NULL;
}
#endif

static redisReplyObjectFunctions functions = {
    .createString = add_text,
    .createArray = add_list,
    .createInteger = add_number,
    .createNil = add_nil,
    .freeObject = free_nothing,
#if HIREDIS_MAJOR >= 1
    .createDouble = refuse_double,
    .createBool = refuse_bool,
#endif
};

struct resp_reader *resp_reader_open(void)
{
    struct resp_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;

    r->reader = redisReaderCreateWithFunctions(&functions);
    if (!r->reader) {
        free(r);
        return NULL;
    }

    r->reader->privdata = r;
    return r;
}

void resp_reader_close(struct resp_reader *r)
{
    if (!r)
        return;

    redisReaderFree(r->reader);
    forget_replies(r);
    free(r->chunks);
    free(r);
}

/* Reads a number in its normal form, which must be complete. Returns the end of its line, or NULL
 * to let hiredis decide. */
static const char *read_digits(const char *at, const char *end, int64_t *number)
{
    const char *from = at;
    for (*number = 0; at < end && at - from < SIMPLE_DIGITS && *at >= '0' && *at <= '9'; at++)
        *number = *number * 10 + (*at - '0');

    bool whole = at > from && end - at >= 2 && at[0] == '\r' && at[1] == '\n';
    return whole && (*from != '0' || at == from + 1) ? at + 2 : NULL;
}

/* Nearly all replies are one complete number or one complete short text. These are read here, at a
 * tenth of the cost; hiredis reads everything else. */
static const struct resp_reply *read_simple(struct resp_reader *r)
{
    const char *end = r->fresh + r->fresh_len, *at;
    int64_t number;
    if ((*r->fresh != ':' && *r->fresh != '$') || !(at = read_digits(r->fresh + 1, end, &number)))
        return NULL;

    r->simple = (struct resp_reply){.type = RESP_NUMBER, .number = number};
    if (*r->fresh == '$') {
        if (number > SIMPLE_MOST || end - at < number + 2 || memcmp(at + number, "\r\n", 2) != 0)
            return NULL;
        memcpy(r->simple_text, at, (size_t)number);
        r->simple_text[number] = 0;
        r->simple =
            (struct resp_reply){.type = RESP_TEXT, .text = r->simple_text, .len = (size_t)number};
        at += number + 2;
    }

    r->fresh = at;
    r->fresh_len = (size_t)(end - at);
    return &r->simple;
}

static bool is_half_read(const struct resp_reader *r)
{
    return r->reader->reply || r->reader->ridx != -1;
}

static bool feed_reader(struct resp_reader *r, const char *bytes, size_t len)
{
    r->unread += len;
    return r->unread <= r->most && redisReaderFeed(r->reader, bytes, len) == REDIS_OK;
}

bool resp_reader_feed(struct resp_reader *r, const char *bytes, size_t len, size_t most)
{
    assert(bytes || !len);
    r->most = most;
    if (r->unread || is_half_read(r))
        return feed_reader(r, bytes, len);

    r->fresh = bytes;
    r->fresh_len = len;
    return len <= most;
}

const struct resp_reply *resp_reader_next(struct resp_reader *r, const char **error)
{
    void *resp = NULL;
    *error = NULL;

    if (r->fresh_len) {
        const struct resp_reply *simple = read_simple(r);
        size_t rest = r->fresh_len;
        if (simple)
            return simple;
        r->fresh_len = 0;
        if (!feed_reader(r, r->fresh, rest)) {
            *error = "no memory for a reply";
            return NULL;
        }
    } else if (!r->unread) {
        return NULL;
    }

    if (!is_half_read(r))
        forget_replies(r);
    if (redisReaderGetReply(r->reader, &resp) != REDIS_OK) {
        *error = r->flaw ? r->flaw : r->reader->errstr;
        return NULL;
    }

    if (resp)
        r->unread = r->reader->len - r->reader->pos;
    return resp;
}

const struct resp_reply *resp_item(const struct resp_reply *list, size_t i)
{
    assert(list);
    const struct resp_reply *item = list->type == RESP_LIST ? list->first : NULL;

    while (item && i--)
        item = item->next;
    return item;
}

int64_t resp_count(const struct resp_reply *resp)
{
    if (!resp)
        return -1;
    if (resp->type == RESP_NUMBER)
        return resp->number;
    if (resp->type != RESP_TEXT || resp->len == 0 || resp->len > 18)
        return -1;

    int64_t number = 0;
    for (size_t i = 0; i < resp->len; i++) {
        unsigned digit = (unsigned)resp->text[i] - '0';
        if (digit > 9)
            return -1;
        number = number * 10 + digit;
    }

    return number;
}
