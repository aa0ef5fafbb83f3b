/* refused_lines.h - which lines of the library had a call refused, counted over many schedules.
 * Included once by a simulator; refused_lines.sh adds up what the simulators print.
 *
 * A line that repeats the command and the key of the call before it counts as called, but cannot be
 * refused alone: a server that has just allowed the one allows the other (model_fail_call()). */
#pragma once
#include "engines/redis/scripts.h"
#include "sim/model/model.h"

#include <stdio.h>
#include <string.h>

enum { LINES_MOST = 4096, LINES_OF_HEAD = 2, TIMES_OF_A_LINE = 12 };

static unsigned line_refused[LINES_MOST]; /* how often */
static bool line_called[LINES_MOST];

/* Which call of the library it was. */
static inline void note_refused(struct model_counts counts)
{
    if (counts.refused && counts.refused_line < LINES_MOST)
        line_refused[counts.refused_line]++;
}

static inline void note_called(const struct model_line line[LINES_MOST])
{
    for (unsigned i = 0; i < LINES_MOST; i++)
        line_called[i] |= line[i].is_called;
}

/* True if calls of that line are still to be refused. */
static inline bool is_due(const struct model_line line[LINES_MOST], unsigned number)
{
    return line[number].first && line_refused[number] < TIMES_OF_A_LINE;
}

static inline bool has_call(const char *line)
{
    return memmem(line, strcspn(line, "\n"), "call('", 6) != NULL;
}

static inline const char *state_of_line(unsigned number)
{
    if (line_refused[number])
        return "refused";
    return line_called[number] ? "repeats" : "uncalled";
}

/* A count, and with `each` the state of every line that has a call. */
static inline void print_refused_lines(bool each)
{
    unsigned lines = 0, met = 0, number = LINES_OF_HEAD;
    for (const char *at = redis_script_body - 1; at; at = strchr(at + 1, '\n')) {
        number++;
        if (!has_call(at + 1))
            continue;
        lines++;
        met += line_refused[number] > 0;
        if (each)
            printf("# line %u %s:%.*s\n", number, state_of_line(number), (int)strcspn(at + 1, "\n"),
                   at + 1);
    }
    printf("# a call was refused in %u of %u lines of the library that have one\n", met, lines);
}
