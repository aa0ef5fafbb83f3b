/* log.c - writes events of the library as lines of JSON. */
#include "log.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int log_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        complain("cannot open the log \"%s\": %s", text_shown(path).text, strerror(errno));
    return fd;
}

bool log_may_correlate(const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || len > HF_CORRELATION_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            return false;
    return true;
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
    fprintf(out, ",\"token\":%" PRIu64 ",\"ttl_ms\":%" PRId64 ",\"held_ms\":%" PRId64 ",\"waited_ms\":%" PRId64,
            event->token, event->ttl_ms, event->held_ms, event->waited_ms);
    fprintf(out, ",\"status\":\"%s\",\"pid\":%d,\"correlation_id\":", hf_status_name(event->status), (int)getpid());
    json_print_text(out, event->correlation_id);
    fputs(",\"text\":", out);
    json_print_text(out, event->text);
    fputs("}\n", out);
}

/* One write a line: several processes append to one log. */
void log_write(int fd, const struct hf_log_event *event)
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
