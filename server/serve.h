/* serve.h - the entry to the service: the command passes its options and gets an exit code. */
#pragma once
#include "holdfast.h"

/* One flag, in the order of the command line. */
struct serve_flag {
    const char *name, *value;
};

struct serve_order {
    const char *url; /* URL of the engine; NULL means $HOLDFAST_URL, or local: if that is not set */
    const char *config; /* configuration file, or NULL */
    bool print_config, json;
    const struct serve_flag *flags;
    size_t flag_count;
};

/* Runs until SIGTERM, SIGINT or SIGHUP. Returns the exit code. */
int serve_run(const struct serve_order *order);
