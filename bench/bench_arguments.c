/* bench_arguments.c - parses the command line of the programs of the bench. */
#include "measure.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

static double number(const char *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    bool valid = *text && !*end && value >= 0;
    if (!valid) {
        fprintf(stderr, "%s: --%s %s: must be a number, 0 or above\n",
                program_invocation_short_name, option, text);
        exit(64);
    }

    return value;
}

static const struct option OPTIONS[] = {
    {"url", required_argument, NULL, 'u'},
    {"who", required_argument, NULL, 'w'},
    {"seconds", required_argument, NULL, 's'},
    {"rep", required_argument, NULL, 'r'},
    {"workers", required_argument, NULL, 'n'},
    {"section-ms", required_argument, NULL, 'm'},
    {"cpu", required_argument, NULL, 'c'},
    {"server-pid", required_argument, NULL, 'p'},
    {NULL, 0, NULL, 0},
};

static void set_option(struct bench *b, int letter, int index)
{
    if (letter == 'u') {
        b->url = optarg;
        return;
    }
    if (letter == 'w') {
        b->who = optarg;
        return;
    }

    double value = number(OPTIONS[index].name, optarg);
    switch (letter) {
    case 's':
        b->seconds = value;
        break;
    case 'm':
        b->section_ms = value;
        break;
    case 'r':
        b->rep = (int)value;
        break;
    case 'n':
        b->workers = (int)value;
        break;
    case 'c':
        b->cpu = (int)value;
        break;
    default:
        b->server_pid = (pid_t)value;
    }
}

struct bench bench_arguments(int argc, char **argv)
{
    struct bench b = {.seconds = 1, .rep = 1, .cpu = -1};
    int letter, index = 0;

    while ((letter = getopt_long(argc, argv, "", OPTIONS, &index)) != -1) {
        if (letter == '?')
            exit(64);
        set_option(&b, letter, index);
    }

    if (optind != argc - 1) {
        fprintf(stderr,
                "usage: %s WORKLOAD [--url URL] [--who WHO] [--seconds S] [--rep R] [--workers N]\n"
                "    [--section-ms M] [--cpu C] [--server-pid PID]\n",
                program_invocation_short_name);
        exit(64);
    }

    b.workload = argv[optind];
    return b;
}
