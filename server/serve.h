/* serve.h - the door of the service: the command gives its order, and gets an exit code. */
#pragma once
#include "holdfast.h"

/* One flag, in the order of the command line. */
struct serve_flag {
    const char *name, *value;
};

struct serve_order {
    const char *url;    /* of the engine; NULL: $HOLDFAST_URL, else local: */
    const char *config; /* a file; NULL: none */
    bool print_config, json;
    const struct serve_flag *flags;
    size_t flag_count;
};

/* Runs until it is told to stop (SIGTERM, SIGINT). */
int serve_run(const struct serve_order *order);
