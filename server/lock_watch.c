/* lock_watch.c - a thread inside hf_watch, and a queue of what it reported for the loop. */
#include "lock_watch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_MS 100   /* time for which a change stays in the queue */
#define RESTART_MS 1000 /* pause after a watch that failed */
#define QUEUE_MAX 10000 /* most changes in the queue; further ones are dropped */

struct seen_change {
    struct seen_change *next;
    struct lease_change change; /* points to the texts below */
    int64_t queued_ms;
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1];
};

struct lock_watch {
    hf_client *client;
    pthread_t thread;
    bool is_started;
    atomic_bool wanted, is_over;
    int64_t started_wall_ms, started_ms;
    pthread_mutex_t lock; /* protects the queue */
    struct seen_change *first, *last;
    size_t count;
};

/* ---- On the thread ---- */

static const char *event_of(const struct hf_log_event *event)
{
    static const char *const words[] = {"queued", "left", "granted", "released", "resized"};

    if (strcmp(event->event, "released") == 0 && event->status == HF_LOST)
        return "expired";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(event->event, words[i]) == 0)
            return words[i];
    return NULL;
}

static void put(struct lock_watch *watch, struct seen_change *seen)
{
    pthread_mutex_lock(&watch->lock);
    bool fits = watch->count < QUEUE_MAX;
    if (fits) {
        *(watch->first ? &watch->last->next : &watch->first) = seen;
        watch->last = seen;
        watch->count++;
    }
    pthread_mutex_unlock(&watch->lock);
    if (!fits)
        free(seen);
}

/* Returns true for a row that a watch reports at its beginning. Such a lock was held or waited for
 * before, so the row is not a change. */
static bool is_old(const struct lock_watch *watch, const struct hf_log_event *event)
{
    bool begins = strcmp(event->event, "granted") == 0 || strcmp(event->event, "queued") == 0;
    bool waits = strcmp(event->event, "queued") == 0;
    int64_t age_ms = waits ? event->waited_ms : event->held_ms;
    return begins && event->wall_ms - age_ms < watch->started_wall_ms;
}

static bool on_change(void *arg, const struct hf_log_event *event)
{
    struct lock_watch *watch = arg;
    bool matters = event && event_of(event) && !is_old(watch, event);
    struct seen_change *seen = matters ? calloc(1, sizeof *seen) : NULL;

    if (seen) {
        bool granted = strcmp(event->event, "granted") == 0;
        snprintf(seen->name, sizeof seen->name, "%s", event->name);
        snprintf(seen->label, sizeof seen->label, "%s", event->label);
        seen->queued_ms = clock_ms();
        seen->change =
            (struct lease_change){.event = event_of(event),
                                  .name = seen->name,
                                  .label = seen->label,
                                  .text = "",
                                  .token = event->token,
                                  .at_ms = event->wall_ms - (granted ? event->held_ms : 0),
                                  .held_ms = granted || !event->token ? -1 : event->held_ms,
                                  .waited_ms = event->waited_ms > 0 ? event->waited_ms : -1,
                                  .sampled = true};
        put(watch, seen);
    }
    return atomic_load(&watch->wanted);
}

static void *run(void *arg)
{
    struct lock_watch *watch = arg;
    /* the poll reports an engine that does not answer */
    (void)!hf_watch(watch->client, NULL, on_change, watch);
    atomic_store(&watch->is_over, true);
    return NULL;
}

/* ---- On the loop ---- */

static void join(struct lock_watch *watch)
{
    if (watch->is_started)
        pthread_join(watch->thread, NULL);
    watch->is_started = false;
}

void lock_watch_run(struct lock_watch *watch, bool wanted)
{
    atomic_store(&watch->wanted, wanted);
    if (watch->is_started && atomic_load(&watch->is_over))
        join(watch);

    bool may_start = wanted && !watch->is_started;
    if (!may_start || clock_ms() - watch->started_ms < RESTART_MS)
        return;
    atomic_store(&watch->is_over, false);
    watch->started_ms = clock_ms();
    watch->started_wall_ms = wall_ms();
    watch->is_started = pthread_create(&watch->thread, NULL, run, watch) == 0;
}

static struct seen_change *take(struct lock_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    struct seen_change *seen = watch->first;
    bool is_due = seen && clock_ms() - seen->queued_ms >= SETTLE_MS;
    if (is_due) {
        watch->first = seen->next;
        watch->count--;
    }
    pthread_mutex_unlock(&watch->lock);
    return is_due ? seen : NULL;
}

void lock_watch_drain(struct lock_watch *watch,
                      void (*fn)(void *arg, const struct lease_change *change), void *arg)
{
    for (struct seen_change *seen; (seen = take(watch)); free(seen))
        fn(arg, &seen->change);
}

struct lock_watch *lock_watch_new(hf_client *client)
{
    struct lock_watch *watch = calloc(1, sizeof *watch);

    if (!watch)
        return NULL;
    watch->client = client;
    watch->started_ms = -RESTART_MS;
    pthread_mutex_init(&watch->lock, NULL);
    return watch;
}

void lock_watch_free(struct lock_watch *watch)
{
    if (!watch)
        return;
    join(watch);
    for (struct seen_change *seen = watch->first, *next; seen; seen = next) {
        next = seen->next;
        free(seen);
    }
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}
