/* findings.h - what `doctor` found, line by line: fine, good to know, worth a look, or broken. */
#pragma once
#include "holdfast.h"
#include <stddef.h>

#define EXIT_UNAVAILABLE 69
#define EXIT_CONFIG 78

enum finding_state { FINDING_OK, FINDING_NOTE, FINDING_WARN, FINDING_FAIL };

struct finding {
    enum finding_state state;
    const char *check; /* one word */
    char text[512];
};

struct findings {
    struct finding all[160]; /* nine servers, and all that can be said of each */
    size_t count, dropped;   /* those beyond the room are counted */
    int exit_code;           /* of the first failure; 0: none */
};

/* Notes one. */
__attribute__((format(printf, 4, 5))) void findings_add(struct findings *findings, enum finding_state state,
                                                        const char *check, const char *format, ...);

/* What was found is a failure: that is the exit code, unless there was one before it. */
void findings_broken(struct findings *findings, int exit_code);

/* Notes what a call of the library had to say as a failure: 69 when the engine cannot be reached or is full, else 78.
 */
void findings_fail(struct findings *findings, const char *check, hf_status status);

/* Prints them; answers with the exit code. */
int findings_print(const struct findings *findings, bool json);
