/* beliefs.h - who believed when to hold what, by its own clock: processes write down the time between the moment in
 * which they knew that they held and the last one in which they still had time left. Two such times of one name that
 * overlap are two holders. All of it lies in memory that the processes share. */
#pragma once
#include "actors.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BELIEFS = 1 << 16 };

struct belief {
    uint32_t what; /* a number for the name, from 1 on */
    pid_t who;
    int64_t from_ns, to_ns;
};

struct beliefs {
    _Atomic uint32_t count;
    struct belief belief[BELIEFS];
};

static inline void believe(struct beliefs *all, struct belief belief)
{
    uint32_t i = atomic_fetch_add(&all->count, 1);
    if (i < BELIEFS)
        all->belief[i] = belief;
}

/* A hold whose beginning is known. The time before hf_lease_left_ms() was asked is the last that it surely covers. */
static inline void believe_in(struct beliefs *all, uint32_t what, const hf_lease *lease, int64_t from_ns)
{
    int64_t to_ns = now_ns();
    if (hf_lease_left_ms(lease) > 0 && to_ns > from_ns)
        believe(all, (struct belief){.what = what, .who = getpid(), .from_ns = from_ns, .to_ns = to_ns});
}

static inline int by_beginning(const void *a, const void *b)
{
    const struct belief *one = a, *other = b;
    if (one->what != other->what)
        return one->what < other->what ? -1 : 1;
    return one->from_ns < other->from_ns ? -1 : one->from_ns > other->from_ns;
}

/* Two that overlap; false: none do. Of one process the times must not either. */
static inline bool two_believed(const struct beliefs *all, struct belief *one, struct belief *other)
{
    uint32_t count = atomic_load(&all->count);
    size_t size = (count < BELIEFS ? count : BELIEFS) * sizeof *all->belief;
    struct belief *sorted = malloc(size + 1);
    assert_non_null(sorted);
    memcpy(sorted, all->belief, size);
    qsort(sorted, size / sizeof *sorted, sizeof *sorted, by_beginning);
    bool found = false;
    *one = (struct belief){.what = 0}; /* that which lasts longest, of those that began before */
    for (size_t i = 0; i < size / sizeof *sorted && !found; i++) {
        *other = sorted[i];
        found = one->what == other->what && other->from_ns < one->to_ns;
        if (!found && (one->what != other->what || other->to_ns > one->to_ns))
            *one = *other;
    }
    free(sorted);
    return found;
}

#define assert_one_believed(all) check_one_believed(all, __FILE__, __LINE__)
static inline void check_one_believed(const struct beliefs *all, const char *file, int line)
{
    struct belief one, other;
    assert_true(atomic_load(&all->count) <= BELIEFS);
    if (!two_believed(all, &one, &other))
        return;
    int64_t both = (one.to_ns < other.to_ns ? one.to_ns : other.to_ns) -
                   (one.from_ns > other.from_ns ? one.from_ns : other.from_ns);
    print_error("two held %u for %lld us: process %d and process %d\n", one.what, (long long)both / 1000, (int)one.who,
                (int)other.who);
    _fail(file, line);
}
