/* resp.c - writes commands, and reads replies with hiredis' reader into an arena of our own. */
#include "resp.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_CHUNK = 8192, ARENA_TIMES = 2 }; /* an answer may take so many times its bytes when it is read */
enum { SIMPLE_MOST = 63, SIMPLE_DIGITS = 18 };

/* ---- Commands ---- */

enum { NUMBER_MOST = 20 }; /* letters */
_Static_assert(HF_FRAME_MOST == NUMBER_MOST + 5, "a letter, the length, and two ends of lines");

char *hf_command_grow(struct hf_command *c, size_t more)
{
    size_t room = c->room ? c->room : 512;
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

/* Numbers are written by hand: a command has many, and printf took a third of all its time. */
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

char *hf_put_number(char *to, uint64_t number)
{
    return put_digits(to, number, count_digits(number));
}

static inline char *put_end(char *to)
{
    memcpy(to, "\r\n", 2);
    return to + 2;
}

/* A length or count: the letter, the number, the line's end. */
static inline char *put_count(char *to, char letter, size_t count)
{
    *to++ = letter;
    if (count < 10) {
        *to++ = (char)('0' + count);
    } else if (count < 100) {
        *to++ = (char)('0' + count / 10);
        *to++ = (char)('0' + count % 10);
    } else {
        to = hf_put_number(to, count);
    }
    return put_end(to);
}

void hf_command_begin(struct hf_command *c, unsigned words)
{
    char *to = hf_command_room(c, HF_FRAME_MOST);
    if (to)
        hf_command_end(c, put_count(to, '*', words));
}

void hf_command_words(struct hf_command *c, const char *bytes, size_t len)
{
    char *to = hf_command_room(c, len);
    if (!to)
        return;
    memcpy(to, bytes, len);
    c->len += len;
}

char *hf_put_word(char *to, const char *text, size_t len)
{
    to = put_count(to, '$', len);
    memcpy(to, text, len);
    return put_end(to + len);
}

void hf_command_word(struct hf_command *c, const char *text, size_t len)
{
    char *to = hf_command_room(c, len + HF_FRAME_MOST);
    if (to)
        hf_command_end(c, hf_put_word(to, text, len));
}

void hf_command_text(struct hf_command *c, const char *text)
{
    hf_command_word(c, text, strlen(text));
}

void hf_command_letter(struct hf_command *c, char letter)
{
    char *to = hf_command_room(c, HF_FRAME_MOST);
    if (!to)
        return;
    memcpy(to, "$1\r\n?\r\n", 7);
    to[4] = letter;
    c->len += 7;
}

void hf_command_number(struct hf_command *c, int64_t number)
{
    if (number >= 0 && number < 10) {
        hf_command_letter(c, (char)('0' + number));
        return;
    }
    char *to = hf_command_room(c, NUMBER_MOST + HF_FRAME_MOST);
    if (!to)
        return;
    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    unsigned digits = count_digits(size);
    to = put_count(to, '$', digits + (number < 0));
    if (number < 0)
        *to++ = '-';
    hf_command_end(c, put_end(put_digits(to, size, digits)));
}

void hf_command_add(struct hf_command *c, const struct hf_words *words)
{
    hf_command_words(c, words->bytes, words->len);
}

struct hf_words hf_words_of(const int64_t *numbers, unsigned count)
{
    struct hf_words words;
    struct hf_command c = {.bytes = words.bytes, .room = sizeof words.bytes};
    assert(count <= HF_WORDS_MOST);
    for (unsigned i = 0; i < count; i++)
        hf_command_number(&c, numbers[i]);
    words.len = c.len;
    return words;
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
    size_t most;       /* bytes that a reply may have */
    size_t unread;     /* bytes that were fed since the last whole reply */
    const char *flaw;  /* what our own functions did not like; NULL: nothing */
    const char *fresh; /* bytes that the reader has not seen, */
    size_t fresh_len;  /* where it has nothing half read: see read_simple() */
    struct hf_reply simple;
    char simple_text[SIMPLE_MOST + 1];
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

/* A whole number that is written as it should be, and its end; NULL: that is for the reader to judge. */
static const char *read_digits(const char *at, const char *end, int64_t *number)
{
    const char *from = at;
    for (*number = 0; at < end && at - from < SIMPLE_DIGITS && *at >= '0' && *at <= '9'; at++)
        *number = *number * 10 + (*at - '0');
    bool whole = at > from && end - at >= 2 && at[0] == '\r' && at[1] == '\n';
    return whole && (*from != '0' || at == from + 1) ? at + 2 : NULL;
}

/* Nearly all answers are one number or one short text, whole. Those are read here, at a tenth of the cost; whatever
 * looks different in any way is the reader's. */
static const struct hf_reply *read_simple(struct hf_replies *r)
{
    const char *end = r->fresh + r->fresh_len, *at;
    int64_t number;
    if ((*r->fresh != ':' && *r->fresh != '$') || !(at = read_digits(r->fresh + 1, end, &number)))
        return NULL;
    r->simple = (struct hf_reply){.type = HF_REPLY_NUMBER, .number = number};
    if (*r->fresh == '$') {
        if (number > SIMPLE_MOST || end - at < number + 2 || memcmp(at + number, "\r\n", 2) != 0)
            return NULL;
        memcpy(r->simple_text, at, (size_t)number);
        r->simple_text[number] = 0;
        r->simple = (struct hf_reply){.type = HF_REPLY_TEXT, .text = r->simple_text, .len = (size_t)number};
        at += number + 2;
    }
    r->fresh = at;
    r->fresh_len = (size_t)(end - at);
    return &r->simple;
}

static bool is_half_read(const struct hf_replies *r)
{
    return r->reader->reply || r->reader->ridx != -1;
}

static bool feed_reader(struct hf_replies *r, const char *bytes, size_t len)
{
    r->unread += len;
    return r->unread <= r->most && redisReaderFeed(r->reader, bytes, len) == REDIS_OK;
}

bool hf_replies_feed(struct hf_replies *r, const char *bytes, size_t len, size_t most)
{
    r->most = most;
    if (r->unread || is_half_read(r))
        return feed_reader(r, bytes, len);
    r->fresh = bytes;
    r->fresh_len = len;
    return len <= most;
}

const struct hf_reply *hf_replies_next(struct hf_replies *r, const char **error)
{
    void *reply = NULL;
    *error = NULL;
    if (r->fresh_len) {
        const struct hf_reply *simple = read_simple(r);
        size_t rest = r->fresh_len;
        if (simple)
            return simple;
        r->fresh_len = 0;
        if (!feed_reader(r, r->fresh, rest)) {
            *error = "no memory for an answer";
            return NULL;
        }
    } else if (!r->unread) {
        return NULL;
    }
    if (!is_half_read(r))
        forget_replies(r);
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
        unsigned digit = (unsigned)reply->text[i] - '0';
        if (digit > 9)
            return -1;
        number = number * 10 + digit;
    }
    return number;
}
