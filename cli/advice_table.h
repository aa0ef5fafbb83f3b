/* advice_table.h - the traits of a story, and the table of locks that fit them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum story_trait {
    SKIP = 1,
    MANY = 2,
    READERS = 4,
    WEIGHTS = 8,
    SCRIPT = 16,
    NESTED = 32,
    SEVERAL = 64,
    CORRECT = 128,
    MACHINES = 256,
    DATABASE = 512,
    QUEUE = 1024,
    RATE = 2048,
    OPEN_ENDED = 4096,
    FAILOVER = 8192,
    STRICT = 16384,
};

struct advice {
    int64_t traits; /* traits of the stories that this advice is for */
    const char *story, *use, *why;
};

extern const struct advice ADVICE[];
extern const size_t ADVICE_COUNT;

/* Returns the story with the traits that its given traits imply. */
int64_t story_completed(int64_t story);

/* Returns true if the advice fits the story and no other fitting advice has more of its traits. */
bool advice_fits(const struct advice *advice, int64_t story);
