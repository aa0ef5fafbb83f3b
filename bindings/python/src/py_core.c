/* py_core.c - the part of a client that outlives its Python object: which calls are inside, which
 * callers are parked, which events wait for an event loop. Nothing here needs the GIL unless it
 * says so. */
#include "py_binding.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Callbacks find their core by its index here. A pointer would dangle: on_lost may begin after the
 * lease was freed, and nothing says when it has ended. */
enum { CORES = 4096 };
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct core *table[CORES];

static bool take_slot(struct core *core)
{
    bool found = false;

    pthread_mutex_lock(&table_lock);
    for (unsigned i = 0; i < CORES && !found; i++)
        if (!table[i]) {
            table[i] = core;
            core->slot = i;
            found = true;
        }
    pthread_mutex_unlock(&table_lock);
    return found;
}

static void free_slot(const struct core *core)
{
    pthread_mutex_lock(&table_lock);
    if (table[core->slot] == core)
        table[core->slot] = NULL;
    pthread_mutex_unlock(&table_lock);
}

/* ---- Forks ---- */

static atomic_ulong generation;

unsigned long fork_generation(void)
{
    return atomic_load(&generation);
}

static void before_fork(void)
{
    pthread_mutex_lock(&table_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&table_lock);
}

/* The child has none of the parent's clients: it forgets them and never frees them. */
static void after_fork_in_child(void)
{
    atomic_fetch_add(&generation, 1);
    memset(table, 0, sizeof table);
    pthread_mutex_unlock(&table_lock);
}

int core_watch_forks(void)
{
    return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

uintptr_t core_ticket(const struct core *core, uint32_t id)
{
    return (uintptr_t)core->slot << 32 | id;
}

/* ---- Opening ---- */

static struct core *core_new(void)
{
    struct core *core = calloc(1, sizeof *core);
    pthread_condattr_t monotonic;

    if (!core)
        return NULL;
    core->references = 1;
    core->last = &core->first;
    core->generation = fork_generation();
    core->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (core->event_fd < 0) {
        free(core);
        return NULL;
    }
    pthread_mutex_init(&core->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&core->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return core;
}

struct core *core_open(const char *url, bool has_loop)
{
    struct hf_client_options options = {.size = sizeof options, .own_callbacks = has_loop};
    struct core *core = core_new();
    hf_status status;

    if (!core)
        return (struct core *)fail(HF_NO_MEMORY, "no memory or descriptor for a client");
    if (!take_slot(core)) {
        core_unref(core);
        return (struct core *)fail(HF_FULL, "too many clients are open in this process");
    }

    core->has_loop = has_loop;
    Py_BEGIN_ALLOW_THREADS status = hf_open(url, &options, &core->hf);
    Py_END_ALLOW_THREADS if (status == HF_OK) return core;
    fail(status, hf_error_text());
    free_slot(core);
    core_unref(core);
    return NULL;
}

static void free_events(struct event *event)
{
    while (event) {
        struct event *next = event->next;
        free(event);
        event = next;
    }
}

/* A core of the parent process is left as it is: another thread of the parent may have had its
 * lock when the process forked. */
void core_unref(struct core *core)
{
    if (core->generation != fork_generation())
        return;
    if (atomic_fetch_sub(&core->references, 1) != 1)
        return;
    free_slot(core);
    free_events(core->first);
    close(core->event_fd);
    pthread_cond_destroy(&core->idle);
    pthread_mutex_destroy(&core->lock);
    free(core);
}

/* ---- Calls inside ---- */

bool core_enter(struct core *core)
{
    if (core->generation != fork_generation()) {
        fail(HF_FORKED, "it belongs to the parent process");
        return false;
    }

    pthread_mutex_lock(&core->lock);
    bool may = core->hf && !core->closing;
    core->calls += may;
    pthread_mutex_unlock(&core->lock);
    if (!may)
        fail(HF_CLOSED, "the client is closed");
    return may;
}

void core_leave(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    if (--core->calls == 0)
        pthread_cond_broadcast(&core->idle);
    pthread_mutex_unlock(&core->lock);
}

bool core_is_open(const struct core *core)
{
    return core->generation == fork_generation() && core->hf && !core->closing;
}

void core_park(struct core *core, struct parked *parked, hf_lease *lease)
{
    pthread_mutex_lock(&core->lock);
    parked->lease = lease;
    parked->link = &core->parked;
    parked->next = core->parked;
    if (parked->next)
        parked->next->link = &parked->next;
    core->parked = parked;
    if (core->closing)
        (void)hf_cancel(lease);
    pthread_mutex_unlock(&core->lock);
}

void core_unpark(struct core *core, struct parked *parked)
{
    pthread_mutex_lock(&core->lock);
    *parked->link = parked->next;
    if (parked->next)
        parked->next->link = parked->link;
    pthread_mutex_unlock(&core->lock);
}

/* ---- Closing ---- */

static struct timespec after_ms(int64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

/* Ends every parked caller and waits for all calls. Returns false if some did not end in time. */
static bool become_idle(struct core *core, int64_t timeout_ms)
{
    struct timespec end = after_ms(timeout_ms);
    int error = 0;

    for (struct parked *p = core->parked; p; p = p->next)
        (void)hf_cancel(p->lease);
    while (core->calls && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&core->idle, &core->lock, &end);
    return core->calls == 0;
}

/* Begins a close. Needs the GIL: code that reads a lease under the GIL need not enter. Returns
 * false if the client is closed already. */
static bool begin_close(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    bool may = core->hf && !core->closing;
    core->closing = true;
    pthread_mutex_unlock(&core->lock);
    return may;
}

static hf_status end_close(struct core *core, int64_t timeout_ms)
{
    pthread_mutex_lock(&core->lock);
    bool is_idle = become_idle(core, timeout_ms);
    core->closing = is_idle;
    pthread_mutex_unlock(&core->lock);
    if (!is_idle)
        return HF_TIMEOUT;

    hf_status status = hf_close(core->hf, timeout_ms);
    pthread_mutex_lock(&core->lock);
    core->hf = NULL;
    pthread_mutex_unlock(&core->lock);
    free_slot(core);
    return status;
}

hf_status core_close(struct core *core, int64_t timeout_ms)
{
    hf_status status;

    if (core->generation != fork_generation() || !begin_close(core))
        return HF_OK;
    Py_BEGIN_ALLOW_THREADS status = end_close(core, timeout_ms);
    Py_END_ALLOW_THREADS return status;
}

/* ---- Events ---- */

static struct event *event_new(uint32_t id, enum event_kind kind, hf_status status)
{
    struct event *event = malloc(sizeof *event);

    if (!event)
        return NULL;
    event->next = NULL;
    event->kind = kind;
    event->id = id;
    event->status = status;
    snprintf(event->text, sizeof event->text, "%s", status == HF_OK ? "" : hf_error_text());
    holder_read(&event->holder, status);
    return event;
}

static void add_event(struct core *core, struct event *event)
{
    static const uint64_t one = 1;

    pthread_mutex_lock(&core->lock);
    *core->last = event;
    core->last = &event->next;
    pthread_mutex_unlock(&core->lock);
    if (core->has_loop)
        return; /* the loop's own thread is in hf_process, and takes the events when that returns */
    if (write(core->event_fd, &one, sizeof one) < 0) {
        /* The write fails only if the counter is at its maximum; the eventfd is readable then. */
    }
}

/* Runs on the library's thread. The table's lock keeps the core while the event is added; a core
 * leaves the table before it is freed. */
void core_post(uintptr_t ticket, enum event_kind kind, hf_status status)
{
    struct event *event = event_new((uint32_t)ticket, kind, status);

    if (!event)
        return;
    pthread_mutex_lock(&table_lock);
    struct core *core = table[ticket >> 32];
    if (core)
        add_event(core, event);
    else
        free(event);
    pthread_mutex_unlock(&table_lock);
}

int core_event_fd(const struct core *core)
{
    return core->has_loop ? hf_fd(core->hf) : core->event_fd;
}

struct event *core_take_events(struct core *core)
{
    uint64_t count;

    if (!core->has_loop && read(core->event_fd, &count, sizeof count) < 0) {
        /* The eventfd was empty. */
    }
    pthread_mutex_lock(&core->lock);
    struct event *first = core->first;
    core->first = NULL;
    core->last = &core->first;
    pthread_mutex_unlock(&core->lock);
    return first;
}

/* ---- Events that are waited for ---- */

struct event *core_take_event(struct core *core, enum event_kind kind, uint32_t id)
{
    struct event *found = NULL;

    pthread_mutex_lock(&core->lock);
    for (struct event **link = &core->first; *link && !found; link = &(*link)->next) {
        struct event *event = *link;
        if (event->kind != kind || event->id != id || event->status != HF_OK)
            continue;
        found = event;
        *link = event->next;
        if (core->last == &event->next)
            core->last = link;
        break;
    }
    pthread_mutex_unlock(&core->lock);
    return found;
}

static bool has_events(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    bool has = core->first != NULL;
    pthread_mutex_unlock(&core->lock);
    return has;
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static bool is_readable(const struct core *core, int64_t us)
{
    struct timespec most = {.tv_nsec = us * 1000};
    struct pollfd replies = {.fd = hf_fd(core->hf), .events = POLLIN};
    return ppoll(&replies, 1, &most, NULL) > 0;
}

/* Reads replies until there is an event. Some replies bring no event, such as that the request has
 * a place in the queue. */
static bool read_until(struct core *core, int64_t end, bool spin)
{
    for (int64_t left; !has_events(core);) {
        left = end - now_us();
        if (left <= 0)
            return false;
        if (is_readable(core, spin ? 0 : left))
            (void)hf_process(core->hf);
    }
    return true;
}

/* Called without the GIL. Waking a thread takes longer than a server on this machine needs to
 * reply, so this thread spins first, as the library does for blocking callers. Where server and
 * client share a processor that never pays: each miss in a row doubles the number of calls that do
 * not spin, a hit halves it. */
static void read_replies(struct core *core, int64_t us)
{
    enum { MISSES_MAX = 12 };
    int64_t begin = now_us();

    if (core->spin_us > 0 && core->rest == 0) {
        bool hit = read_until(core, begin + (core->spin_us < us ? core->spin_us : us), true);
        core->misses = hit ? core->misses / 2 : core->misses + (core->misses < MISSES_MAX);
        core->rest = (1U << core->misses) - 1;
    } else if (core->rest) {
        core->rest--;
    }
    (void)read_until(core, begin + us, false);
}

enum nearby core_await_event(struct core *core, enum event_kind kind, uint32_t id,
                             long microseconds)
{
    Py_BEGIN_ALLOW_THREADS read_replies(core, microseconds);
    Py_END_ALLOW_THREADS struct event *event = core_take_event(core, kind, id);
    unsigned nearby = event ? NEARBY_DONE : NEARBY_NOTHING;

    free(event);
    return (enum nearby)(nearby | (has_events(core) ? NEARBY_OTHERS : 0));
}
