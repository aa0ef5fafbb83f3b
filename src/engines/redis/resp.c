/* resp.c - writes commands, and reads replies with hiredis' reader into an arena of our own. */
#include "resp.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_CHUNK = 8192, ARENA_TIMES = 2 }; /* an answer may take so many times its bytes when it is read */

/* ---- Commands ---- */

static char *make_room(struct hf_command *c, size_t more)
{
    if (c->len + more > c->room && !c->failed) {
        size_t room = c->room ? c->room : 512;
        while (room < c->len + more)
            room *= 2;
        char *bytes = realloc(c->bytes, room);
        c->failed = !bytes;
        if (bytes) {
            c->bytes = bytes;
            c->room = room;
        }
    }
    return c->failed ? NULL : c->bytes + c->len;
}

/* Digits that end there; where they begin. A command has many numbers, and printf took a third of all its time. */
static char *write_digits(char *end, uint64_t number)
{
    do
        *--end = (char)('0' + number % 10);
    while (number /= 10);
    return end;
}

/* A length or count: the letter, the number, the line's end. */
static void put_count(struct hf_command *c, char letter, size_t count)
{
    char digits[24], *at = digits + sizeof digits;
    *--at = '\n';
    *--at = '\r';
    at = write_digits(at, count);
    *--at = letter;
    size_t len = (size_t)(digits + sizeof digits - at);
    char *to = make_room(c, len);
    if (to) {
        memcpy(to, at, len);
        c->len += len;
    }
}

void hf_command_begin(struct hf_command *c, unsigned words)
{
    put_count(c, '*', words);
}

void hf_command_word(struct hf_command *c, const char *text, size_t len)
{
    put_count(c, '$', len);
    char *to = make_room(c, len + 2);
    if (!to)
        return;
    memcpy(to, text, len);
    memcpy(to + len, "\r\n", 2);
    c->len += len + 2;
}

void hf_command_text(struct hf_command *c, const char *text)
{
    hf_command_word(c, text, strlen(text));
}

void hf_command_number(struct hf_command *c, int64_t number)
{
    char digits[24], *end = digits + sizeof digits;
    char *at = write_digits(end, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
    if (number < 0)
        *--at = '-';
    hf_command_word(c, at, (size_t)(end - at));
}

void hf_command_free(struct hf_command *c)
{
    free(c->bytes);
    *c = (struct hf_command){0};
}

/* ---- Replies ---- */

struct chunk {
    struct chunk *next;
    size_t used, room;
    max_align_t bytes[];
};

struct hf_replies {
    redisReader *reader;
    struct chunk *chunks; /* the newest first; the oldest one stays */
    size_t allocated;
    size_t most;      /* bytes that a reply may have */
    size_t unread;    /* bytes that were fed since the last whole reply */
    const char *flaw; /* what our own functions did not like; NULL: nothing */
};

static void *take(struct hf_replies *r, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct chunk *c = r->chunks;
    if (!c || c->room - c->used < size) {
        size_t room = size > ARENA_CHUNK ? size : ARENA_CHUNK;
        r->flaw = r->allocated + room > ARENA_TIMES * r->most ? "an answer that is too long" : NULL;
        if (r->flaw || !(c = malloc(sizeof *c + room)))
            return NULL;
        *c = (struct chunk){.next = r->chunks, .room = room};
        r->chunks = c;
        r->allocated += room;
    }
    char *at = (char *)c->bytes + c->used;
    c->used += size;
    return at;
}

static void forget_replies(struct hf_replies *r)
{
    while (r->chunks && r->chunks->next) {
        struct chunk *c = r->chunks;
        r->chunks = c->next;
        r->allocated -= c->room;
        free(c);
    }
    if (r->chunks)
        r->chunks->used = 0;
}

/* An object, as the next item of the list that it stands in. */
static struct hf_reply *add(const redisReadTask *task, enum hf_reply_type type)
{
    struct hf_reply *reply = take(task->privdata, sizeof *reply);
    if (!reply)
        return NULL;
    *reply = (struct hf_reply){.type = type};
    struct hf_reply *list = task->parent ? task->parent->obj : NULL;
    if (list) {
        *(list->last ? &list->last->next : &list->first) = reply;
        list->last = reply;
        list->len++;
    }
    return reply;
}

static void *add_text(const redisReadTask *task, char *text, size_t len)
{
    enum hf_reply_type type = task->type == REDIS_REPLY_ERROR    ? HF_REPLY_ERROR
                              : task->type == REDIS_REPLY_STATUS ? HF_REPLY_STATUS
                                                                 : HF_REPLY_TEXT;
    struct hf_replies *r = task->privdata;
    if (memcmp(text + len, "\r\n", 2) != 0) { /* it is there, and the reader does not look at it */
        r->flaw = "a text that is longer than it says";
        return NULL;
    }
    struct hf_reply *reply = add(task, type);
    char *copy = reply ? take(task->privdata, len + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = 0;
    reply->text = copy;
    reply->len = len;
    return reply;
}

#if HIREDIS_MAJOR >= 1
static void *add_list(const redisReadTask *task, size_t items)
#else
static void *add_list(const redisReadTask *task, int items)
#endif
{
    /* The announced number is not believed: items are made as they come. */
    (void)items;
    return add(task, HF_REPLY_LIST);
}

static void *add_number(const redisReadTask *task, long long value)
{
    struct hf_reply *reply = add(task, HF_REPLY_NUMBER);
    if (reply)
        reply->number = value;
    return reply;
}

static void *add_nil(const redisReadTask *task)
{
    return add(task, HF_REPLY_NIL);
}

static void free_nothing(void *object)
{
    (void)object; /* the arena is emptied as a whole */
}

#if HIREDIS_MAJOR >= 1
static void *refuse_double(const redisReadTask *task, double value, char *text, size_t len)
{
    (void)task, (void)value, (void)text, (void)len;
    return NULL; /* RESP3, which we do not ask for */
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

struct hf_replies *hf_replies_open(void)
{
    struct hf_replies *r = calloc(1, sizeof *r);
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

void hf_replies_close(struct hf_replies *r)
{
    if (!r)
        return;
    redisReaderFree(r->reader);
    forget_replies(r);
    free(r->chunks);
    free(r);
}

bool hf_replies_feed(struct hf_replies *r, const char *bytes, size_t len, size_t most)
{
    r->unread += len;
    r->most = most;
    return r->unread <= most && redisReaderFeed(r->reader, bytes, len) == REDIS_OK;
}

const struct hf_reply *hf_replies_next(struct hf_replies *r, const char **error)
{
    void *reply = NULL;
    *error = NULL;
    if (!r->reader->reply && r->reader->ridx == -1)
        forget_replies(r); /* nothing is half read */
    if (redisReaderGetReply(r->reader, &reply) != REDIS_OK) {
        *error = r->flaw ? r->flaw : r->reader->errstr;
        return NULL;
    }
    if (reply)
        r->unread = r->reader->len - r->reader->pos;
    return reply;
}

const struct hf_reply *hf_reply_item(const struct hf_reply *list, size_t i)
{
    const struct hf_reply *item = list->type == HF_REPLY_LIST ? list->first : NULL;
    while (item && i--)
        item = item->next;
    return item;
}

int64_t hf_reply_count(const struct hf_reply *reply)
{
    if (!reply)
        return -1;
    if (reply->type == HF_REPLY_NUMBER)
        return reply->number;
    if (reply->type != HF_REPLY_TEXT || reply->len == 0 || reply->len > 18)
        return -1;
    int64_t number = 0;
    for (size_t i = 0; i < reply->len; i++) {
        if (reply->text[i] < '0' || reply->text[i] > '9')
            return -1;
        number = number * 10 + (reply->text[i] - '0');
    }
    return number;
}
