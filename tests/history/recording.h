/* recording.h - processes that use locks of a real server write their history down together, in memory that they share;
 * when all is over it is put into the order of its times and judged. Whoever is killed while it writes leaves an event
 * that is not whole, which does not count. */
#pragma once
#include "actors.h"
#include "history.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOLDS = 1 << 17 }; /* room for those of a short test */

struct record {
    _Atomic uint32_t number; /* of the event that is whole here, from 1 on */
    struct history_event event;
};

struct recording {
    uint32_t room, first; /* what was written before `first` was judged, and its place is used again */
    _Atomic uint32_t count, attempts;
    struct record at[];
};

static inline size_t recording_size(uint32_t room)
{
    return sizeof(struct recording) + room * sizeof(struct record);
}

/* Memory that is not written to costs nothing. */
static inline struct recording *recording_open(uint32_t room)
{
    void *at =
        mmap(NULL, recording_size(room), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    struct recording *r = at;
    r->room = room;
    return r;
}

static inline void recording_close(struct recording *r)
{
    munmap(r, recording_size(r->room));
}

/* A number for one that asks. */
static inline uint32_t recording_attempt(struct recording *r)
{
    return atomic_fetch_add(&r->attempts, 1);
}

static inline void record_event(struct recording *r, const struct history_event *event)
{
    uint32_t i = atomic_fetch_add(&r->count, 1);
    struct record *at = &r->at[i % r->room];
    atomic_store(&at->number, 0);
    at->event = *event;
    atomic_store(&at->number, i + 1);
}

#define RECORD(r, ...) record_event(r, &(struct history_event){__VA_ARGS__})

/* A hold that nobody else has, told when it is over, if it is still good: the time before that was asked is the last
 * that it surely covers. */
static inline void record_hold(struct recording *r, uint32_t lock, const hf_lease *lease, int64_t from)
{
    int64_t to = now_ns();
    uint64_t token = hf_lease_token(lease);
    if (token == 1) /* what HF_TOKENLESS has */
        token = 0;
    if (hf_lease_left_ms(lease) > 0 && to > from)
        RECORD(r, .at = from, .what = H_HELD, .lock = lock, .token = token, .from = from, .until = to);
}

/* ---- Judging ---- */

static inline int by_time(const void *a, const void *b)
{
    struct record *const *one = a, *const *other = b;
    if ((*one)->event.at != (*other)->event.at)
        return (*one)->event.at < (*other)->event.at ? -1 : 1;
    return atomic_load(&(*one)->number) < atomic_load(&(*other)->number) ? -1 : 1;
}

/* What was good, and is seen to be good later, was good in between. */
static inline void fill_gaps(struct record **sorted, size_t count, uint32_t attempts)
{
    struct history_event **last = calloc(attempts + 1, sizeof *last);
    assert_non_null(last);
    for (size_t i = 0; i < count; i++) {
        struct history_event *e = &sorted[i]->event;
        if (e->what == H_BELIEVES && last[e->who] && last[e->who]->until <= e->at)
            last[e->who]->until = e->at + 1;
        if (e->what == H_BELIEVES || e->what == H_GRANTED)
            last[e->who] = e;
    }
    free(last);
}

/* What is judged stays in `h`; "": nothing was wrong. */
static inline const char *recording_judge(struct recording *r, struct history *h, const struct history_rules *rules)
{
    uint32_t written = atomic_load(&r->count) - r->first;
    if (written > r->room)
        fail_msg("%u events, and room for %u", written, r->room);
    struct record **sorted = calloc(written + 1, sizeof *sorted);
    assert_non_null(sorted);
    size_t count = 0;
    for (uint32_t i = r->first; i < r->first + written; i++)
        if (atomic_load(&r->at[i % r->room].number) == i + 1)
            sorted[count++] = &r->at[i % r->room];
    qsort(sorted, count, sizeof *sorted, by_time);
    fill_gaps(sorted, count, atomic_load(&r->attempts));
    history_begin(h, rules);
    for (size_t i = 0; i < count; i++)
        history_add(h, &sorted[i]->event);
    history_finish(h);
    free(sorted);
    return history_failure(h);
}

/* What was written down so far will not be judged again. */
static inline void recording_forget(struct recording *r)
{
    r->first = atomic_load(&r->count);
}

/* Of holds that were told with record_hold(): was there one at a time? */
static inline bool two_held(struct recording *r, char *why, size_t size)
{
    struct history *h = history_open();
    const char *failure = recording_judge(r, h, &(struct history_rules){.exact = false});
    snprintf(why, size, "%s", failure);
    history_close(h);
    return *why;
}

#define assert_one_held(recording) check_one_held(recording, __FILE__, __LINE__)
static inline void check_one_held(struct recording *r, const char *file, int line)
{
    char why[400];
    if (!two_held(r, why, sizeof why))
        return;
    print_error("%s\n", why);
    _fail(file, line);
}
