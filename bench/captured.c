/* captured.c - records a client of the library, and parses the commands that it sends. */
#include "captured.h"

#include "library.h"
#include "recorder.h"
#include "redis_requests.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MOST 128
#define SLOW_ONES_MS 50
#define TRIES_MOST 10

/* ---- Phrases ---- */

struct phrase phrase_copy(const struct phrase *phrase)
{
    struct phrase copy = *phrase;
    copy.bytes = malloc(phrase->len + 1);
    if (!copy.bytes)
        bench_fail("no memory for a phrase");
    memcpy(copy.bytes, phrase->bytes, phrase->len);
    return copy;
}

void phrase_free(struct phrase *phrase)
{
    free(phrase->bytes);
    *phrase = (struct phrase){0};
}

void phrase_replace(struct phrase *phrase, const char *old, const char *new)
{
    size_t len = strlen(old);
    char *at = phrase->bytes, *end = at + phrase->len;
    if (strlen(new) != len)
        bench_fail("%s is not as long as %s", new, old);

    while ((at = memmem(at, (size_t)(end - at), old, len))) {
        memcpy(at, new, len);
        at += len;
    }
}

void phrase_set_id(struct phrase *phrase, const char *id)
{
    for (int i = 0; i < phrase->ids; i++)
        memcpy(phrase->bytes + phrase->id_at[i], id, ID_LEN);
}

void phrase_set_token(struct phrase *phrase, const char *token)
{
    for (int i = 0; i < phrase->tokens; i++)
        memcpy(phrase->bytes + phrase->token_at[i], token, TOKEN_LEN);
}

void phrase_next_id(char id[ID_LEN], int worker, uint64_t cycle)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number[2] = {cycle, (uint64_t)worker};

    for (int i = 0; i < ID_LEN; i++) {
        uint64_t *from = &number[i >= 16];
        id[i] = digits[*from & 15];
        *from >>= 4;
    }
}

/* ---- Parsing ---- */

struct words {
    const char *bytes;
    size_t len; /* length of the whole command */
    int count;
    size_t at[WORDS_MOST], size[WORDS_MOST];
};

/* Reads the command at the beginning of `bytes`, as in "*2\r
 * $4\r
 * PING\r
 * ...". */
static struct words read_words(const char *bytes, size_t len)
{
    struct words w = {.bytes = bytes};
    const char *at = bytes, *end = bytes + len;
    long count = len > 3 && *at == '*' ? strtol(at + 1, NULL, 10) : 0;

    for (long i = 0; i < count && i < WORDS_MOST && at; i++) {
        at = memchr(at, '$', (size_t)(end - at));
        const char *mark = at ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!mark)
            break;
        w.at[i] = (size_t)(mark + 1 - bytes);
        w.size[i] = strtoul(at + 1, NULL, 10);
        w.len = w.at[i] + w.size[i] + 2;
        w.count++;
        at = bytes + w.len;
    }

    if (w.count == 0 || w.count != count || w.len > len)
        bench_fail("cannot read what the library sent: %.*s", len > 200 ? 200 : (int)len, bytes);

    return w;
}

static bool same_word(const struct words *a, const struct words *b, int i)
{
    return a->size[i] == b->size[i] &&
           memcmp(a->bytes + a->at[i], b->bytes + b->at[i], a->size[i]) == 0;
}

/* Returns true if the word may be a time that was measured. On a quorum a request says for how many
 * ms a free lock is kept for the first waiter; that follows the measured round trip, so it differs
 * from cycle to cycle. */
bool is_measured_time(const char *word, size_t len)
{
    return len <= 3 && strspn(word, "0123456789") >= len;
}

static void note_place(struct phrase *phrase, size_t at, size_t size)
{
    bool digits = strspn(phrase->bytes + at, "0123456789") >= size;
    if (size == ID_LEN && phrase->ids < PLACES_MOST)
        phrase->id_at[phrase->ids++] = at;
    else if (size == TOKEN_LEN && digits && phrase->tokens < PLACES_MOST)
        phrase->token_at[phrase->tokens++] = at;
    else if (!is_measured_time(phrase->bytes + at, size))
        bench_fail("an argument differs in each cycle and is neither id nor token: %.*s", (int)size,
                   phrase->bytes + at);
}

size_t part_len(const char *word, size_t len)
{
    const char *space = memchr(word, ' ', len);
    return space ? (size_t)(space - word) : len;
}

/* Notes the parts of an argument that differ between two cycles. */
static void note_parts(struct phrase *phrase, size_t at, const char *other, size_t size)
{
    for (size_t part; size; at += part, other += part, size -= part) {
        part = part_len(phrase->bytes + at, size);
        if (memcmp(phrase->bytes + at, other, part) != 0)
            note_place(phrase, at, part);
        part += part < size; /* skips the blank after the part */
    }
}

/* Compares the same command of two cycles, and notes the ids and tokens in it. */
static struct phrase learn(const struct words *one, const struct words *two)
{
    struct phrase phrase =
        phrase_copy(&(struct phrase){.bytes = (char *)one->bytes, .len = one->len});
    if (one->count != two->count || one->len != two->len)
        bench_fail("two cycles differ: %.*s and %.*s", (int)one->len, one->bytes, (int)two->len,
                   two->bytes);

    for (int i = 0; i < one->count; i++)
        if (!same_word(one, two, i))
            note_parts(&phrase, one->at[i], two->bytes + two->at[i], one->size[i]);
    return phrase;
}

static int read_commands(const struct recording *recording, struct words *commands, int most)
{
    int count = 0;
    for (size_t at = 0; at < recording->len; at += commands[count++].len) {
        if (count == most)
            bench_fail("two cycles sent more than %d commands", most);
        commands[count] = read_words(recording->bytes + at, recording->len - at);
    }

    return count;
}

/* Returns false if a cycle did not consist of `phrases` commands. */
static bool learn_cycle(const struct recording *recording, int phrases, struct captured *captured)
{
    struct words commands[2 * PHRASES_MOST];
    if (read_commands(recording, commands, 2 * PHRASES_MOST) != 2 * phrases)
        return false;

    captured->phrases = phrases;
    for (int i = 0; i < phrases; i++)
        captured->phrase[i] = learn(&commands[i], &commands[phrases + i]);
    return true;
}

/* Reads the key of the inbox from the waiter's command, "BLMPOP SECONDS 1 BOX ...". */
static void learn_pop(const struct recording *recording, struct captured *captured)
{
    struct words commands[2];
    if (read_commands(recording, commands, 2) != 2 || commands[0].count < 4 ||
        commands[0].size[3] >= sizeof captured->box)
        bench_fail("two cycles that wait did not send two BLMPOP commands");
    captured->pop = learn(&commands[0], &commands[1]);
    memcpy(captured->box, commands[0].bytes + commands[0].at[3], commands[0].size[3]);
}

/* ---- Recording ---- */

/* A client that holds the lock first, so that the recorded client must wait. */
struct before {
    hf_client *client; /* NULL: the recorded client need not wait */
    struct hf_request request;
    hf_lease *lease[SEMAPHORE_OF];
    uint32_t held;
};

static void count_waiter(void *arg, const struct hf_row *row)
{
    *(int *)arg += row->role == HF_WAITER;
}

static void *give_when_awaited(void *arg)
{
    struct before *before = arg;
    int waiters = 0;

    while (waiters == 0) {
        pass_ms(1);
        library_must(hf_show(before->client, before->request.name, count_waiter, &waiters));
    }

    while (before->held > 0) {
        hf_lease *lease = before->lease[--before->held];
        library_must(hf_release(lease));
        hf_lease_free(lease);
    }

    return NULL;
}

static void take_all(struct before *before, pthread_t *thread)
{
    uint32_t all = before->request.capacity ? before->request.capacity : 1;
    while (before->held < all)
        library_must(hf_acquire(before->client, &before->request, &before->lease[before->held++]));
    if (pthread_create(thread, NULL, give_when_awaited, before) != 0)
        bench_fail("no thread");
}

/* `pause_ms` is time for those replies of servers that the library did not wait for. */
static void cycle(const struct lock_kind *kind, void *lock, struct before *before, double pause_ms)
{
    pthread_t thread;
    if (before->client)
        take_all(before, &thread);
    kind->take(lock);
    if (before->client)
        pthread_join(thread, NULL);
    pass_ms(pause_ms);
    kind->give(lock);
    pass_ms(pause_ms);
}

/* Starts a recorder in front of each server of the URL, and prints the URL of the recorders into
 * `listened`. Returns the number of servers. */
static int put_between(const char *url, char *listened, size_t size, struct recorder **recorder)
{
    int servers = 0;
    size_t len = 0;

    while (*url && len + 32 < size) {
        unsigned port;
        int used = 0;
        if (sscanf(url, "127.0.0.1:%u%n", &port, &used) == 1 && servers < SERVERS_MOST) {
            recorder[servers] = recorder_start((uint16_t)port);
            len += (size_t)snprintf(listened + len, size - len, "127.0.0.1:%u",
                                    recorder_port(recorder[servers++]));
            url += used;
        } else {
            listened[len++] = *url++;
        }
    }

    listened[len] = 0;
    return servers;
}

int record_cycles(const struct bench *b, const struct lock_kind *kind, int cycles,
                  struct recorder *recorder[SERVERS_MOST])
{
    char listened[512];
    struct bench through = *b;
    struct before before = {.request = request_of(b)};
    int servers = put_between(b->url, listened, sizeof listened, recorder);
    if (servers == 0)
        bench_fail("%s: must name a server 127.0.0.1:PORT", b->url);

    through.url = listened;
    void *lock = kind->open(&through, 0);
    if (b->workers > 1 && servers == 1)
        before.client = library_open(b, false);

    for (int i = 0; i <= cycles; i++) { /* the first cycle connects and loads the scripts */
        cycle(kind, lock, &before, servers > 1 ? SLOW_ONES_MS : 0);
        for (int server = 0; server < servers && i == 0; server++)
            recorder_forget(recorder[server]);
    }

    library_must(hf_close(before.client, 1000));
    kind->close(lock);
    return servers;
}

static bool try_to_capture(const struct bench *b, int phrases, struct captured *captured,
                           int *servers)
{
    struct recorder *recorder[SERVERS_MOST];
    struct lock_kind kind = library_kind(b);
    bool complete = true;
    int connections;

    *servers = record_cycles(b, &kind, 2, recorder);
    for (int i = 0; i < *servers; i++) {
        const struct recording *recording = recorder_stop(recorder[i], &connections);
        captured[i] = (struct captured){0};
        complete = learn_cycle(&recording[0], phrases, &captured[i]) && complete;
        if (connections > 1)
            learn_pop(&recording[1], &captured[i]);
        recorder_free(recorder[i]);
    }

    return complete;
}

/* If the servers of a quorum happen to propose the same token, nothing is written back, and the
 * cycles are recorded again. */
int capture(const struct bench *b, int phrases, struct captured captured[SERVERS_MOST])
{
    int servers, tries = 0;
    while (!try_to_capture(b, phrases, captured, &servers))
        if (++tries == TRIES_MOST)
            bench_fail("the library did not send %d commands a cycle", phrases);
    return servers;
}
