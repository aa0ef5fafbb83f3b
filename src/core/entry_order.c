/* entry_order.c - decides who holds, as a pure function of a list of entries. */
#include "entry_order.h"

#include <assert.h>

/* Requests are of the same class if they may share a queue. Semaphores with different capacities
 * may not. */
struct class
{
    enum { CLASS_NONE, CLASS_EXCLUSIVE, CLASS_READ_WRITE, CLASS_SEMAPHORE } sort;
    uint32_t declared;
};

static struct class class_of(const struct queue_entry *entry)
{
    if (entry->foreign || entry->kind == HF_EXCLUSIVE)
        return (struct class){.sort = CLASS_EXCLUSIVE};
    if (entry->kind == HF_SEMAPHORE)
        return (struct class){.sort = CLASS_SEMAPHORE, .declared = entry->capacity};
    return (struct class){.sort = CLASS_READ_WRITE};
}

static bool same_class(struct class a, struct class b)
{
    return a.sort == b.sort && a.declared == b.declared;
}

bool entry_order_agree(const struct queue_entry *a, const struct queue_entry *b)
{
    bool foreign_and_exclusive = (a->foreign || b->foreign) && class_of(a).sort == class_of(b).sort;
    return foreign_and_exclusive ||
           (!a->foreign && !b->foreign && same_class(class_of(a), class_of(b)));
}

uint32_t entry_order_need(const struct queue_entry *entry)
{
    if (entry->foreign || entry->kind == HF_EXCLUSIVE)
        return 1;
    if (entry->kind == HF_SEMAPHORE)
        return entry->units;
    return entry->kind == HF_WRITE ? QUEUE_ALL : 1;
}

uint32_t entry_order_capacity(const struct queue_entry *entry, struct queue_resize resize)
{
    if (entry->foreign || entry->kind == HF_EXCLUSIVE)
        return 1;
    if (entry->kind != HF_SEMAPHORE)
        return QUEUE_ALL;
    return resize.capacity && resize.declared == entry->capacity ? resize.capacity
                                                                 : entry->capacity;
}

struct state {
    struct queue_summary summary;
    struct class class;
};

static void let_in(struct state *state, struct queue_entry *entry)
{
    entry->holds = true;
    entry->place = 0;
    state->summary.used += entry_order_need(entry);
    state->summary.holders++;
    state->class = class_of(entry);
}

/* Returns true if the entry fits. The first holder may be of any class; the others must share
 * it. */
static bool fits(const struct state *state, const struct queue_entry *entry,
                 struct queue_resize resize)
{
    uint32_t need = entry_order_need(entry), capacity = entry_order_capacity(entry, resize);
    if (state->summary.used == 0)
        return need <= capacity;
    return same_class(class_of(entry), state->class) && !entry->foreign &&
           state->summary.used + need <= capacity;
}

/* Judges the list. The order is strict: the first entry that does not fit stops all behind it. An
 * entry of another program stops them too, and so does one whose class differs from the holders';
 * neither sets the class for others. */
struct queue_summary entry_order_judge(struct queue_entry *entries, size_t count,
                                       struct queue_resize resize)
{
    struct state state = {.class = {CLASS_NONE, 0}};
    bool barred = false;

    for (size_t i = 0; i < count; i++) {
        assert(i == 0 || entries[i - 1].arrival < entries[i].arrival);
        entries[i].holds = false;
        if (entries[i].confirmed)
            let_in(&state, &entries[i]);
    }

    for (size_t i = 0; i < count; i++) {
        struct queue_entry *entry = &entries[i];
        if (entry->confirmed)
            continue;
        barred = barred || !fits(&state, entry, resize);
        if (barred)
            entry->place = ++state.summary.waiters;
        else
            let_in(&state, entry);
    }

    return state.summary;
}
