/* history_recording.c - records what real clients see, in memory that processes share. */
#include "history_recording.h"

static size_t recording_size(uint32_t room)
{
    return sizeof(struct recording) + room * sizeof(struct record);
}

struct recording *recording_open(uint32_t room)
{
    void *at = mmap(NULL, recording_size(room), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    struct recording *r = at;
    r->room = room;
    return r;
}

void recording_close(struct recording *r)
{
    munmap(r, recording_size(r->room));
}

uint32_t recording_attempt(struct recording *r)
{
    return atomic_fetch_add(&r->attempts, 1);
}

void record_event(struct recording *r, const struct history_event *event)
{
    uint32_t i = atomic_fetch_add(&r->count, 1);
    struct record *at = &r->at[i % r->room];
    atomic_store(&at->number, 0);
    at->event = *event;
    atomic_store(&at->number, i + 1);
}

void record_hold(struct recording *r, uint32_t lock, const hf_lease *lease, int64_t from)
{
    int64_t to = now_ns();
    uint64_t token = hf_lease_token(lease);
    if (token == 1) /* what HF_TOKENLESS has */
        token = 0;
    if (hf_lease_left_ms(lease) > 0 && to > from)
        RECORD(r, .at = from, .what = H_HELD, .lock = lock, .token = token, .from = from,
               .until = to);
}

static int by_time(const void *a, const void *b)
{
    struct record *const *one = a, *const *other = b;
    if ((*one)->event.at != (*other)->event.at)
        return (*one)->event.at < (*other)->event.at ? -1 : 1;
    return atomic_load(&(*one)->number) < atomic_load(&(*other)->number) ? -1 : 1;
}

/* What was good, and is seen to be good later, was good in between. */
static void fill_gaps(struct record **sorted, size_t count, uint32_t attempts)
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

const char *recording_judge(struct recording *r, struct history *h,
                            const struct history_rules *rules)
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

void recording_forget(struct recording *r)
{
    r->first = atomic_load(&r->count);
}

bool two_held(struct recording *r, char *why, size_t size)
{
    struct history *h = history_open();
    const char *failure = recording_judge(r, h, &(struct history_rules){.exact = false});
    snprintf(why, size, "%s", failure);
    history_close(h);
    return *why;
}

void check_one_held(struct recording *r, const char *file, int line)
{
    char why[400];
    if (!two_held(r, why, sizeof why))
        return;
    print_error("%s\n", why);
    _fail(file, line);
}
