/* json_log.c - writes events of the library as lines of JSON. */
#include "json_log.h"
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        complain("cannot open the log \"%s\": %s", output_shown(path).text, strerror(errno));
    return fd;
}

static bool may_correlate(const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || len > HF_CORRELATION_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            return false;
    return true;
}

static int refuse_correlation(const char *source, int code)
{
    complain("%s: not a text of at most %d bytes without control characters", source,
             HF_CORRELATION_MAX);
    return code;
}

/* Checks --correlation-id here, because `extend` and `release` make no request that the library
 * would check. */
static int check_given(const char *given)
{
    bool fits = strlen(given) <= HF_CORRELATION_MAX;
    for (const char *at = given; *at; at++)
        fits &= (unsigned char)*at >= 0x20 && *at != 0x7f;
    return fits ? 0 : refuse_correlation("--correlation-id", EXIT_USAGE);
}

/* Chooses the correlation id. A bad value of an option or of our variable is an error. A bad
 * TRACEPARENT belongs to another program and is ignored. */
static int choose_correlation(const char *given, struct log_outlet *outlet)
{
    const char *ours = getenv("HOLDFAST_CORRELATION_ID"), *theirs = getenv("TRACEPARENT");

    outlet->correlation_id = given;
    if (given)
        return check_given(given);
    if (ours && *ours) {
        outlet->correlation_id = ours;
        if (may_correlate(ours))
            return 0;
        return refuse_correlation("HOLDFAST_CORRELATION_ID from the environment",
                                  hf_status_exit_code(HF_CONFIG));
    }

    if (theirs && may_correlate(theirs))
        outlet->correlation_id = theirs;

    return 0;
}

int log_outlet_open(const struct cli_options *options, struct log_outlet *outlet)
{
    *outlet = (struct log_outlet){.fd = -1, .held_ms = LOG_HELD_UNKNOWN};
    int code = choose_correlation(options->correlation_id, outlet);
    if (code != 0 || !options->log)
        return code;

    outlet->fd = open_file(options->log);
    return outlet->fd >= 0 ? 0 : hf_status_exit_code(HF_CONFIG);
}

struct hf_client_options log_outlet_client(struct log_outlet *outlet)
{
    struct hf_client_options how = {.size = sizeof how, .log_arg = outlet};
    how.on_log = outlet->fd >= 0 ? log_outlet_write : NULL;
    return how;
}

static const char *level_name(enum hf_log_level level)
{
    switch (level) {
    case HF_LOG_ERROR:
        return "error";
    case HF_LOG_WARN:
        return "warn";
    case HF_LOG_INFO:
        return "info";
    case HF_LOG_DEBUG:
        return "debug";
    }

    return "unknown";
}

static void print_event(FILE *out, const struct hf_log_event *event)
{
    fprintf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":", text_time(event->wall_ms).text,
            level_name(event->level));
    json_print_text(out, event->event);
    fputs(",\"name\":", out);
    json_print_text(out, event->name);
    fputs(",\"token\":", out);
    json_print_token(out, event->token);
    fprintf(out, ",\"ttlMs\":%" PRId64 ",\"heldMs\":%" PRId64 ",\"waitedMs\":%" PRId64,
            event->ttl_ms, event->held_ms, event->waited_ms);
    fprintf(out, ",\"status\":\"%s\",\"pid\":%d,\"correlationId\":", hf_status_name(event->status),
            (int)getpid());
    json_print_text(out, event->correlation_id);
    fputs(",\"text\":", out);
    json_print_text(out, event->text);
    fputs("}\n", out);
}

/* One write for each line, because several processes append to one log. */
static void append(int fd, const struct hf_log_event *event)
{
    char *line = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&line, &len);
    bool written = false;

    if (out) {
        print_event(out, event);
        written = fclose(out) == 0 && write(fd, line, len) == (ssize_t)len;
    }
    if (!written)
        complain("cannot write to the log: %s", strerror(errno));
    free(line);
}

/* Appends one event. The library knows neither the correlation id nor the time of the grant of
 * an attached lease, so both come from the outlet. */
void log_outlet_write(void *arg, const struct hf_log_event *event)
{
    const struct log_outlet *outlet = arg;
    struct hf_log_event line = *event;

    if (outlet->fd < 0)
        return;
    if (!line.correlation_id)
        line.correlation_id = outlet->correlation_id;
    if (outlet->held_ms != LOG_HELD_UNKNOWN)
        line.held_ms = outlet->held_ms;
    append(outlet->fd, &line);
}
