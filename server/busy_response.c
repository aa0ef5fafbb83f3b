/* busy_response.c - the refusal of a lock that is held: its holder, its waiters, and when to try
 * again. */
#include "leases.h"
#include "row_json.h"
#include <stdlib.h>

/* A hold that may have to end before the request fits. */
struct hold {
    int64_t left_ms;
    uint32_t units;
};

struct survey {
    struct lock_state *lock_state;
    struct hold *holds;
    size_t count, room;
    uint32_t needed; /* units: most units that this request or a waiter ahead needs */
    int64_t free;    /* free units */
    bool unknown;    /* some hold has no end, or memory ran out */
};

static void note_hold(struct survey *survey, const struct hf_row *row)
{
    if (survey->count == survey->room) {
        size_t room = survey->room ? 2 * survey->room : 16;
        struct hold *more = realloc(survey->holds, room * sizeof *more);
        survey->unknown |= !more;
        if (!more)
            return;
        survey->holds = more;
        survey->room = room;
    }

    survey->holds[survey->count++] = (struct hold){row->left_ms, row->units};
    survey->unknown |= row->left_ms < 0;
    survey->free = (int64_t)row->capacity - row->used;
}

static void note_row(void *arg, const struct hf_row *row)
{
    struct survey *survey = arg;

    if (row->role == HF_WAITER) {
        survey->lock_state->waiters++;
        if (row->units > survey->needed)
            survey->needed = row->units;
        return;
    }

    note_hold(survey, row);
    if (!survey->lock_state->holder)
        survey->lock_state->holder = row_json(row);
}

static int by_end(const void *left, const void *right)
{
    int64_t a = ((const struct hold *)left)->left_ms, b = ((const struct hold *)right)->left_ms;
    return (a > b) - (a < b);
}

/* Returns the time until enough holds have ended: all of them for a writer, the first one for a
 * permit. -1: unknown. */
static int64_t wait_for_units(struct survey *survey)
{
    int64_t free = survey->free, left_ms = -1;

    if (survey->unknown || survey->count == 0)
        return -1;

    qsort(survey->holds, survey->count, sizeof *survey->holds, by_end);
    for (size_t i = 0; i < survey->count && (left_ms < 0 || free < survey->needed); i++) {
        free += survey->holds[i].units;
        left_ms = survey->holds[i].left_ms;
    }

    return left_ms;
}

void lock_state_read(hf_client *client, const char *name, uint32_t needed,
                     struct lock_state *lock_state)
{
    struct survey survey = {.lock_state = lock_state, .needed = needed};
    *lock_state = (struct lock_state){.left_ms = -1};
    if (hf_show(client, name, note_row, &survey) == HF_OK)
        lock_state->left_ms = wait_for_units(&survey);
    free(survey.holds);
}

void answer_busy(struct exchange *x, const struct lock_state *lock_state, const char *detail,
                 json_t *extra)
{
    int64_t again_ms = lock_state->left_ms > 0 ? lock_state->left_ms : 1000;
    json_t *all = extra ? extra : json_object();

    json_object_set_new(all, "retryAfterMs", json_integer(again_ms));
    json_object_set_new(all, "place", json_integer((json_int_t)lock_state->waiters + 1));
    json_object_set_new(all, "waiters", json_integer(lock_state->waiters));
    json_object_set_new(all, "holder", lock_state->holder ? lock_state->holder : json_null());
    int64_t seconds = (again_ms + 999) / 1000;
    char digits[DIGITS_MAX];
    digits_print((uint64_t)(seconds < 1 ? 1 : seconds), digits);
    exchange_field(x, "Retry-After", digits);
    answer_problem(x, 409, "busy", detail, all);
}
