/* span.h - what a stretch of work cost: time, CPU here and in the server, commands. */
#pragma once
#include "measure.h"

struct span {
    const struct bench *b;
    double (*commands)(const struct bench *b); /* NULL: not counted */
    int64_t from_ns;
    double client_us, server_us, sent;
};

struct span span_begin(const struct bench *b, double (*commands)(const struct bench *b));
/* Into r: seconds, ops, per_s, CPU and commands of each, memory of this process. */
void span_end(const struct span *span, double ops, struct result *r);
