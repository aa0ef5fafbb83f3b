/* span.h - the cost of a part of a run: time, CPU time of client and server, commands. */
#pragma once
#include "measure.h"

struct span {
    const struct bench *b;
    double (*commands)(const struct bench *b); /* NULL: commands are not counted */
    int64_t from_ns;
    double client_us, server_us, sent;
};

struct span span_begin(const struct bench *b, double (*commands)(const struct bench *b));
/* Sets in r: seconds, ops, per_s, CPU time and commands for each op, memory of this process. */
void span_end(const struct span *span, double ops, struct result *r);
