/* span.c - the cost of a part of a run. */
#include "span.h"

struct span span_begin(const struct bench *b, double (*commands)(const struct bench *b))
{
    struct span span = {.b = b, .commands = commands};
    span.sent = commands ? commands(b) : NAN;
    span.server_us = b->server_pid ? cpu_us(b->server_pid) : NAN;
    span.client_us = cpu_us(0);
    span.from_ns = now_ns();
    return span;
}

void span_end(const struct span *span, double ops, struct result *r)
{
    result_rate(r, ops, now_ns() - span->from_ns);
    r->client_cpu_us = (cpu_us(0) - span->client_us) / ops;
    if (span->b->server_pid)
        r->server_cpu_us = (cpu_us(span->b->server_pid) - span->server_us) / ops;
    if (span->commands)
        r->commands_per_op = (span->commands(span->b) - span->sent) / ops;
    r->rss_kb = (double)rss_kb(0);
}
