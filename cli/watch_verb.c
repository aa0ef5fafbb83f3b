/* watch_verb.c - the verb `watch`: a live view on a terminal; elsewhere a line for each change. */
#include "output.h"
#include "top.h"
#include "verb_client.h"
#include "verbs.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {
    {"lines", 0, NULL, STORE_CONSTANT, OPTION_FIELD(lines), 1, 1,
     "a line for each change also on a terminal"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

struct lines {
    bool json;
    int code; /* exit code */
};

static void print_json(const struct hf_log_event *event)
{
    printf("{\"time\":\"%s\",\"event\":\"%s\",\"name\":", text_time(event->wall_ms).text,
           event->event);
    json_print_text(stdout, event->name);
    printf(",\"token\":");
    json_print_token(stdout, event->token);
    printf(",\"heldMs\":%" PRId64 ",\"waitedMs\":%" PRId64 ",\"text\":", event->held_ms,
           event->waited_ms);
    json_print_text(stdout, event->text);
    printf("}\n");
}

static void print_words(const struct hf_log_event *event)
{
    printf("%s  %-8s  %s", text_time(event->wall_ms).text, event->event,
           output_shown(event->name).text);
    if (event->token)
        printf("  token %" PRIu64, event->token);
    printf("  %s\n", output_shown(event->text).text);
}

/* Returns true if the reader of stdout has closed it. Checked once a second, because the next
 * change may be far away. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLNVAL));
}

static bool report(void *arg, const struct hf_log_event *event)
{
    struct lines *lines = arg;

    if (!event)
        return !reader_is_gone();
    if (lines->json)
        print_json(event);
    else
        print_words(event);
    lines->code = finish_stdout();
    return lines->code == 0;
}

static int watch_lines(const struct cli_options *options, hf_client *client, const char *prefix)
{
    struct lines lines = {.json = options->json != 0};
    hf_status status = hf_watch(client, prefix, report, &lines);
    return status == HF_OK ? lines.code : fail_with(status);
}

static int run_watch(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    const char *prefix = argc > 0 ? argv[0] : NULL;
    int code = check_operands(&VERB_WATCH, argc, argv, 0, 1);

    if (code == 0)
        code = verb_client_open(options, NULL, &client);
    if (code != 0)
        return code;
    const char *terminal = getenv("TERM");
    bool dumb = !terminal || !*terminal || strcmp(terminal, "dumb") == 0;
    bool live = isatty(STDOUT_FILENO) && !dumb && !options->json && !options->lines;

    return verb_client_close(client, live ? top_run(client, "watch", prefix, 0)
                                          : watch_lines(options, client, prefix));
}

const struct verb VERB_WATCH = {
    .name = "watch",
    .operands = "[PREFIX]",
    .summary =
        "Shows holders and waiters live; without a terminal it prints a line for each change.",
    .details =
        "On a terminal it is `top`. The most urgent names come first, as in `list`. The bar\n"
        "shows the part of the ttl that is left; a renewal fills it again.\n"
        "Lines begin with the present holders and waiters. Events: queued, left, granted, "
        "released, resized.\n"
        "With --json: an object a line with the keys time, event, name, token, heldMs, "
        "waitedMs and text.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_watch,
};
