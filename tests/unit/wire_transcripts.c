/* wire_transcripts.c - plays dialogues between an engine and made-up servers, from text files: each
 * one whole, byte by byte, and split at every place.
 *
 *     wire_transcripts FILE...          plays the files and prints TAP
 *     wire_transcripts --show FILE      prints the file with what the engine does after each line
 *
 * A line of a file is one step of the host, or the pattern (fnmatch) of one thing that the engine
 * does. tests/transcripts/README.md has the list of both. The engine must do just what the file
 * says, in that order. */
#include "lib/transcript_dialect.h"

#include "base/error.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/url.h"
#include "engines/engine.h"
#include "engines/redis/redis_member.h"
#include "engines/redlock/redlock.h"
#include "engines/sentinel/sentinel.h"
#include "engines/wire_engine.h"

#include <assert.h>
#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Their headers have names in common. */
extern const struct wire_engine_type consul_wire_engine, etcd_wire_engine, postgres_wire_engine,
    zookeeper_wire_engine;

enum { WHOLE, SPLIT, BYTES }; /* how the bytes of a server arrive */
enum { OPS = 26, LINE = TRANSCRIPT_LINE, WORD_SHOWN = 64 };

static struct {
    const struct wire_engine_type *type;
    const struct dialect *dialect; /* NULL: that of Redis */
    void *engine;
    nanos now, due;
    struct engine_op op[OPS];
    char name[OPS][64];
    bool refuses;                         /* send() fails */
    bool is_adopted;                      /* the connection of the library */
    bool is_down[TRANSCRIPT_CONNECTIONS]; /* hung up: no more bytes of the server come */
    char did[1 << 17];                    /* lines of what the engine did */
    size_t did_len, read;                 /* bytes of `did`; those that were expected already */
} t;

/* ---- What the engine does ---- */

void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(t.did + t.did_len, sizeof t.did - t.did_len, format, args);
    va_end(args);
    assert(len >= 0 && (size_t)len < sizeof t.did - t.did_len);
    t.did_len += (size_t)len;
}

void print_word(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len && i < WORD_SHOWN; i++)
        if (isprint((unsigned char)bytes[i]) && bytes[i] != '\\')
            note("%c", bytes[i]);
        else
            note("\\x%02x", (unsigned char)bytes[i]);
    if (len > WORD_SHOWN)
        note("...");
}

/* Prints the command at the beginning of `bytes`, as in "*2\r\n$4\r\nPING\r\n...". Returns its
 * length; 0: it is incomplete. */
static size_t print_command(unsigned connection, const char *bytes, size_t len)
{
    char *at = (char *)(uintptr_t)bytes;
    const char *end = bytes + len;
    long words = len > 3 && bytes[0] == '*' ? strtol(bytes + 1, &at, 10) : 0;
    long total = words;
    note("EXPECT %u", connection);
    for (at += 2; words > 0 && at < end && *at == '$'; words--) {
        long size = strtol(at + 1, &at, 10);
        note(" ");
        print_word(at + 2, (size_t)size);
        at += 2 + size + 2;
    }
    note("\n");
    assert(total > 0 && words == 0 && at <= end);
    return (size_t)(at - bytes);
}

static void dial(void *ctx, unsigned connection, const struct endpoint *to)
{
    (void)ctx;
    char where[ENDPOINT_TEXT_MAX];
    endpoint_print(to, where);
    note("DIAL %u %s\n", connection, where);
    t.is_down[connection] = false;
    if (t.dialect)
        t.dialect->reset(connection);
}

static bool send_bytes(void *ctx, unsigned connection, const void *bytes, size_t len)
{
    (void)ctx;
    if (t.refuses)
        return false;
    if (t.dialect)
        t.dialect->sent(connection, bytes, len);
    for (size_t used = 0; !t.dialect && used < len;)
        used += print_command(connection, (const char *)bytes + used, len - used);
    return true;
}

static void hang_up(void *ctx, unsigned connection)
{
    (void)ctx;
    note("HANGUP %u\n", connection);
    t.is_adopted = false;
    t.is_down[connection] = true;
}

/* A library's descriptor: noted when it is new. */
static void adopt(void *ctx, unsigned connection, int fd, unsigned interest)
{
    (void)ctx;
    (void)fd;
    (void)interest;
    if (!t.is_adopted)
        note("ADOPT %u\n", connection);
    t.is_adopted = true;
}

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    static const char *const kinds[] = {
        [REPLY_GRANTED] = "GRANTED",   [REPLY_QUEUED] = "QUEUED",     [REPLY_BUSY] = "BUSY",
        [REPLY_EXTENDED] = "EXTENDED", [REPLY_RELEASED] = "RELEASED", [REPLY_NOT_HELD] = "NOT_HELD",
        [REPLY_UNKNOWN] = "UNKNOWN",   [REPLY_FAILED] = "FAILED",     [REPLY_NOTIFY] = "NOTIFY"};
    bool holds = reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED;
    (void)ctx;
    note("REPLY %c %s", (char)('a' + (op - t.op)), kinds[reply->kind]);
    if (holds)
        note(" %" PRIu64, reply->token);
    if (reply->kind == REPLY_QUEUED)
        note(" %u", reply->place);
    if (reply->kind == REPLY_FAILED)
        note(" %s", status_row(reply->status)->name);
    if (reply->outcome_unknown)
        note(" outcome_unknown");
    if (reply->text && reply->kind != REPLY_UNKNOWN)
        note(" %s", reply->text);
    note("\n");
}

static void recheck(void *ctx)
{
    (void)ctx;
    note("RECHECK\n");
}

static uint32_t draw(void *ctx)
{
    (void)ctx;
    return UINT32_MAX / 2;
}

static const struct wire_engine_host host = {.dial = dial,
                                             .send = send_bytes,
                                             .hang_up = hang_up,
                                             .adopt = adopt,
                                             .on_reply = on_reply,
                                             .recheck = recheck,
                                             .random = draw};

/* ---- Steps of the host ---- */

static const char *open_engine(const char *text)
{
    static const struct {
        const char *scheme;
        const struct wire_engine_type *type;
        const struct dialect *dialect;
    } types[] = {{"redis", &redis_wire_engine, NULL},
                 {"redis+sentinel", &sentinel_wire_engine, NULL},
                 {"redlock", &redlock_wire_engine, NULL},
                 {"etcd", &etcd_wire_engine, &grpc_dialect},
                 {"consul", &consul_wire_engine, &http_dialect},
                 {"zookeeper", &zookeeper_wire_engine, &jute_dialect},
                 {"postgres", &postgres_wire_engine, &postgres_dialect}};
    struct settings settings;
    struct url url;
    settings_defaults(&settings, engine_settings());
    if (url_parse(&url, text) != HF_OK || settings_from_query(&settings, url.query) != HF_OK)
        return error_text();
    const struct engine_type *engine = engine_find(url.scheme, strlen(url.scheme));
    if (engine && engine->fit_defaults)
        engine->fit_defaults(&settings);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].scheme, url.scheme) == 0) {
            t.type = types[i].type;
            t.dialect = types[i].dialect;
        }
    if (!t.type)
        return "no engine of that scheme";
    return t.type->open(&t.engine, &url, &settings, &host) == HF_OK ? NULL : error_text();
}

static struct engine_op *name_op(char letter, const char *name)
{
    struct engine_op *op = &t.op[letter - 'a'];
    char *kept = t.name[letter - 'a'];
    if (name != kept)
        snprintf(kept, sizeof t.name[0], "%s", name);
    op->name = kept;
    op->name_len = (uint16_t)strlen(kept);
    op->units = op->capacity = 1;
    op->ttl_ms = 10000;
    op->label = "";
    op->attempt.b[0] = op->owner.b[0] = (uint8_t)letter;
    return op;
}

/* "then=b:name": the op that the client submits behind `last`. Returns it. */
static struct engine_op *name_next(struct engine_op *last, const char *word)
{
    static const char then[] = "then=";
    size_t len = sizeof then - 1;
    bool is_one = strncmp(word, then, len) == 0 && word[len] >= 'a' && word[len] <= 'z';
    if (!is_one || word[len + 1] != ':')
        return last;
    last->next = name_op(word[len], word + len + 2);
    last->of_several = last->next->of_several = true;
    return last->next;
}

/* "a ACQUIRE name", followed by any of queue, in_flight, tokenless, named, then=LETTER:NAME and
 * ttl=MS, which is that of the op named last. */
static const char *submit(char *words)
{
    static const char *const verbs[] = {
        [OP_ACQUIRE] = "ACQUIRE",    [OP_LEAVE] = "LEAVE",     [OP_EXTEND] = "EXTEND",
        [OP_CHECK] = "CHECK",        [OP_RELEASE] = "RELEASE", [OP_UPGRADE] = "UPGRADE",
        [OP_DOWNGRADE] = "DOWNGRADE"};
    const char *letter = strtok(words, " "), *verb = strtok(NULL, " "), *name = strtok(NULL, " ");
    if (!name || letter[0] < 'a' || letter[0] > 'z')
        return "not LETTER VERB NAME";
    struct engine_op *op = name_op(letter[0], name), *last = op;
    op->queue = op->may_be_in_flight = op->named = false;

    op->verb = OP_NONE;
    for (unsigned i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (verbs[i] && strcmp(verbs[i], verb) == 0)
            op->verb = (enum op_verb)i;
    if (op->verb == OP_NONE)
        return "no such verb";
    for (const char *word; (word = strtok(NULL, " "));) {
        op->queue |= strcmp(word, "queue") == 0;
        op->may_be_in_flight |= strcmp(word, "in_flight") == 0;
        op->tokenless |= strcmp(word, "tokenless") == 0;
        op->named |= strcmp(word, "named") == 0;
        if (strncmp(word, "ttl=", 4) == 0)
            last->ttl_ms = atoi(word + 4);
        last = name_next(last, word);
    }
    t.type->submit(t.engine, op, t.now);
    for (struct engine_op *next; op != last; op = next) { /* the pointers are valid in submit() */
        next = op->next;
        op->next = NULL;
    }
    return NULL;
}

static void pass_on(unsigned connection, const char *bytes, size_t len, int way, size_t split)
{
    size_t step = way == BYTES ? 1 : len;
    if (way == SPLIT && split < len)
        step = split;
    for (size_t at = 0; at < len && !t.is_down[connection];) {
        size_t part = step < len - at ? step : len - at;
        char *copy = malloc(part); /* exactly as long: a sanitizer sees reads behind its end */
        memcpy(copy, bytes + at, part);
        t.type->connection_bytes(t.engine, connection, copy, part, t.now);
        t.due = t.type->tick(t.engine, t.now);
        free(copy);
        at += part;
        if (way == SPLIT)
            step = len;
    }
}

/* The library may have read something. */
static void go_on(unsigned connection)
{
    if (t.is_adopted)
        t.type->connection_ready(t.engine, connection, WIRE_READABLE, t.now);
    t.due = t.type->tick(t.engine, t.now);
}

/* Resolves \r, \n and \xNN, and makes a bulk string of "$(TEXT)": its length, the end of a line and
 * the text. Returns the length. */
size_t unescape(const char *text, size_t len, char *out)
{
    size_t to = 0;
    for (size_t at = 0; at < len;) {
        const char *close = memchr(text + at, ')', len - at);
        unsigned byte;
        if (text[at] == '$' && at + 1 < len && text[at + 1] == '(' && close) {
            char inside[LINE];
            size_t from = at + 2,
                   size = unescape(text + from, (size_t)(close - text) - from, inside);
            to += (size_t)sprintf(out + to, "$%zu\r\n", size);
            memcpy(out + to, inside, size);
            to += size;
            at = (size_t)(close - text) + 1;
        } else if (text[at] == '\\' && (text[at + 1] == 'r' || text[at + 1] == 'n')) {
            out[to++] = text[at + 1] == 'r' ? '\r' : '\n';
            at += 2;
        } else if (text[at] == '\\' && sscanf(text + at, "\\x%2x", &byte) == 1) {
            out[to++] = (char)byte;
            at += 4;
        } else {
            out[to++] = text[at++];
        }
    }
    return to;
}

static void let_pass(nanos length)
{
    nanos until = t.now + length;
    while (t.due <= until) {
        t.now = t.due > t.now ? t.due : t.now;
        nanos next = t.type->tick(t.engine, t.now);
        t.due = next > t.now ? next : t.now + NANOS_OF_MS(1);
    }
    t.now = until;
}

/* SEND, RAW, or a step of the protocol. Returns false if it is none of these. */
static bool send_step(const char *step, unsigned connection, const char *text, int way,
                      size_t split, const char **error)
{
    char bytes[TRANSCRIPT_BYTES + 2];
    long len = -1;
    if (strcmp(step, "RAW") == 0) {
        len = (long)unescape(text, strlen(text), bytes);
    } else if (t.dialect) {
        len = t.dialect->make(step, connection, text, bytes);
    } else if (strcmp(step, "SEND") == 0) {
        len = (long)unescape(text, strlen(text), bytes) + 2;
        memcpy(bytes + len - 2, "\r\n", 2);
    }
    if (len == -1)
        return false;
    if (len == -2)
        *error = "it cannot be sent";
    else if (len == 0)
        go_on(connection);
    else
        pass_on(connection, bytes, (size_t)len, way, split);
    return true;
}

/* Does a step. Returns false if the line is none; *error: what is wrong with it. */
static bool do_step(char *line, int way, size_t split, const char **error)
{
    char *rest = line + strcspn(line, " ");
    size_t len = (size_t)(rest - line);
    char step[16];
    snprintf(step, sizeof step, "%.*s", (int)len, line);
    unsigned connection = *rest ? (unsigned)atoi(rest) : 0;
    char *text = *rest ? rest + 1 + strcspn(rest + 1, " ") : rest;
    text += *text == ' ';
    rest += *rest == ' ';
#define IS(word) (len == sizeof word - 1 && memcmp(line, word, len) == 0)
    if (IS("ENGINE")) {
        *error = open_engine(rest);
    } else if (IS("SUBMIT")) {
        *error = submit(rest);
    } else if (IS("FORGET")) {
        t.type->forget(t.engine, &t.op[rest[0] - 'a']);
    } else if (IS("UP")) {
        t.type->connection_up(t.engine, connection, t.now);
    } else if (IS("DOWN")) {
        t.type->connection_down(t.engine, connection, HF_UNAVAILABLE, text, t.now);
    } else if (IS("AFTER")) {
        let_pass(NANOS_OF_MS(atoi(rest)));
    } else if (IS("REFUSE")) {
        t.refuses = atoi(rest);
    } else if (!t.engine || !send_step(step, connection, text, way, split, error)) {
        return false;
    }
    if (!*error && t.engine)
        t.due = t.type->tick(t.engine, t.now);
    return true;
}

/* ---- Playing ---- */

/* Takes the oldest line of what the engine did; "": there is none. Valid until the next call. */
static const char *take_done(void)
{
    static char line[LINE];
    const char *from = t.did + t.read;
    size_t len = strcspn(from, "\n");
    snprintf(line, sizeof line, "%.*s", (int)len, from);
    t.read += len + (from[len] == '\n');
    return line;
}

static void begin(void)
{
    memset(&t, 0, sizeof t);
    t.now = NANOS_OF_MS(1000000);
    t.due = TIME_NEVER;
}

static void end(void)
{
    if (t.engine)
        t.type->close(t.engine);
    for (unsigned i = 0; t.dialect && i < TRANSCRIPT_CONNECTIONS; i++)
        t.dialect->reset(i);
}

static void show_done(const char *line)
{
    puts(line);
    for (const char *did; *(did = take_done());)
        printf("    %s\n", did);
}

/* One line of the file. Returns false after a message if the engine did something else. */
static bool play_line(const char *file, int number, const char *line, int way, size_t split,
                      bool shows)
{
    char copy[LINE + 8];
    const char *error = NULL;
    snprintf(copy, LINE, "%s", line);
    if (do_step(copy, way, split, &error)) {
        if (error)
            printf("# %s:%d: %s: %s\n", file, number, line, error);
        if (shows)
            show_done(line);
        return !error;
    }
    if (shows)
        return true;

    const char *did = take_done();
    if (fnmatch(line, did, FNM_NOESCAPE) == 0)
        return true;
    printf("# %s:%d: expected: %s\n# the engine did: %s\n", file, number, line, did);
    return false;
}

/* Returns the length of the longest line of the file, or 0 after a message about the first thing
 * that was not as the file says. */
static size_t play(const char *file, int way, size_t split, bool shows)
{
    char line[LINE];
    size_t longest = 1;
    bool good = true;
    FILE *in = fopen(file, "r");
    if (!in) {
        printf("# %s: %m\n", file);
        return 0;
    }

    begin();
    for (int number = 1; good && fgets(line, sizeof line, in); number++) {
        line[strcspn(line, "\n")] = 0;
        bool is_step = line[0] && line[0] != '#';
        if (is_step && strlen(line) > longest)
            longest = strlen(line);
        good = !is_step || play_line(file, number, line, way, split, shows);
    }
    const char *more = good && !shows ? take_done() : "";
    if (*more)
        printf("# %s: the engine also did: %s\n", file, more);
    good &= !*more;
    end();
    fclose(in);
    return good ? longest : 0;
}

static bool play_every_split(const char *file, size_t longest)
{
    for (size_t split = 1; split < longest; split++)
        if (!play(file, SPLIT, split, false)) {
            printf("# split behind byte %zu of each SEND\n", split);
            return false;
        }
    return longest > 0;
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0;
    if (argc == 3 && strcmp(argv[1], "--show") == 0)
        return !play(argv[2], WHOLE, 0, true);
    for (int i = 1; i < argc; i++) {
        size_t longest = play(argv[i], WHOLE, 0, false);
        bool bytes = play(argv[i], BYTES, 0, false), splits = play_every_split(argv[i], longest);
        const bool good[] = {longest != 0, bytes, splits};
        static const char *const ways[] = {"whole", "byte by byte", "split at every place"};
        for (int way = 0; way < 3; way++) {
            printf("%sok %d - %s, %s\n", good[way] ? "" : "not ", ++count, argv[i], ways[way]);
            failed += !good[way];
        }
    }
    printf("1..%d\n", count);
    return failed > 0;
}
