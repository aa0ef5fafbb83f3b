/* history_recording.h - processes that use locks of a real server write their history down
 * together, in memory that they share; when all is over it is put into the order of its times and
 * judged. Whoever is killed while it writes leaves an event that is not whole, which does not
 * count. */
#pragma once
#include "checker.h"
#include "lib/actors.h"

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
    uint32_t room,
        first; /* what was written before `first` was judged, and its place is used again */
    _Atomic uint32_t count, attempts;
    struct record at[];
};

/* Memory that is not written to costs nothing. */
struct recording *recording_open(uint32_t room);
void recording_close(struct recording *r);

/* A number for one that asks. */
uint32_t recording_attempt(struct recording *r);
void record_event(struct recording *r, const struct history_event *event);

#define RECORD(r, ...) record_event(r, &(struct history_event){__VA_ARGS__})

/* A hold that nobody else has, told when it is over, if it is still good: the time before that was
 * asked is the last that it surely covers. */
void record_hold(struct recording *r, uint32_t lock, const hf_lease *lease, int64_t from);

/* ---- Judging ---- */

/* What is judged stays in `h`; "": nothing was wrong. */
const char *recording_judge(struct recording *r, struct history *h,
                            const struct history_rules *rules);

/* What was written down so far will not be judged again. */
void recording_forget(struct recording *r);

/* Of holds that were told with record_hold(): was there one at a time? */
bool two_held(struct recording *r, char *why, size_t size);

#define assert_one_held(recording) check_one_held(recording, __FILE__, __LINE__)
void check_one_held(struct recording *r, const char *file, int line);
