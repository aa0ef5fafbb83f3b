/* findings.h - what `doctor` found: a list of lines, each ok, note, warn or fail. */
#pragma once
#include "holdfast.h"
#include <stddef.h>

#define EXIT_UNAVAILABLE 69
#define EXIT_CONFIG 78

enum finding_state { FINDING_OK, FINDING_NOTE, FINDING_WARN, FINDING_FAIL };

struct finding {
    enum finding_state state;
    char check[32]; /* one word */
    char text[512];
};

struct findings {
    struct finding all[160]; /* room for nine servers with all findings of each */
    size_t count, dropped;   /* `dropped`: number of findings that did not fit */
    int exit_code;           /* exit code of the first failure; 0 if nothing failed */
};

/* Adds a finding. */
__attribute__((format(printf, 4, 5))) void findings_add(struct findings *findings,
                                                        enum finding_state state, const char *check,
                                                        const char *format, ...);

/* Sets the exit code, unless an earlier failure has set it. */
void findings_broken(struct findings *findings, int exit_code);

/* Adds the library's error message as a failure. The exit code is 69 if the engine cannot be
 * reached or is full, otherwise 78. */
void findings_fail(struct findings *findings, const char *check, hf_status status);

/* Prints all findings and returns the exit code. */
int findings_print(const struct findings *findings, bool json);
