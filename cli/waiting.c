/* waiting.c - draws the waiting line. */
#include "waiting.h"
#include "holders.h"
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_MS 200    /* who gets the lock before that needs no line */
#define REDRAW_MS 500   /* on a terminal */
#define REPEAT_MS 10000 /* elsewhere the second line, and twice as long each time after it */
#define COLUMNS_UNKNOWN 80

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void waiting_begin(struct waiting *waiting, const char *name, const struct terminal *terminal, hf_client *client,
                   int bell)
{
    *waiting = (struct waiting){
        .client = client, .name = name, .bell = bell, .terminal = terminal, .redraws = isatty(STDERR_FILENO)};
    waiting->next_ms = now_ms() + FIRST_MS;
    waiting->pause_ms = waiting->redraws ? REDRAW_MS : REPEAT_MS;
}

int64_t waiting_pause(const struct waiting *waiting)
{
    int64_t pause = waiting->next_ms - now_ms();
    return pause > 0 ? pause : 0;
}

/* Cuts a text to the terminal's width: a line that wraps cannot be redrawn. */
static void fit(char *text)
{
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    size_t columns = (known ? size.ws_col : COLUMNS_UNKNOWN) - 1;
    for (; *text; text++) {
        bool begins = ((unsigned char)*text & 0xc0) != 0x80;
        if (begins && columns-- == 0)
            break;
    }
    *text = 0;
}

static void draw(struct waiting *waiting, char *line)
{
    bool colour = text_may_colour(STDERR_FILENO);
    /* A background job that scribbles over the user's prompt every half second is a nuisance. */
    if (waiting->terminal->fd >= 0 && !terminal_is_ours(waiting->terminal))
        return;
    fit(line);
    dprintf(STDERR_FILENO, "\r%s%s%s\033[K", colour ? "\033[33m" : "", line, colour ? "\033[0m" : "");
    waiting->drawn = true;
}

static void describe(const struct waiting *waiting, const struct glance *glance, char *line, size_t room)
{
    size_t waiters;
    if (glance->status != HF_OK)
        snprintf(line, room, "waiting for \"%s\" (%.300s)", text_shown(waiting->name).text, glance->words);
    else if (holders_include_us(&glance->rows))
        snprintf(line, room, "waiting: \"%s\" is ours on the server, and not confirmed yet",
                 text_shown(waiting->name).text);
    else
        snprintf(line, room, "waiting: %s", holders_describe(waiting->name, &glance->rows).text);
    uint32_t place = holders_place(&glance->rows, getpid(), &waiters);
    size_t full = strlen(line);
    if (place > 0)
        snprintf(line + full, room - full, "; our place %" PRIu32 " of %zu", place, waiters);
}

static void say(struct waiting *waiting, const struct glance *glance)
{
    char line[1280];
    describe(waiting, glance, line, sizeof line);
    if (waiting->redraws)
        draw(waiting, line);
    else
        complain("%s", line);
}

static void put_off(struct waiting *waiting)
{
    waiting->next_ms = now_ms() + waiting->pause_ms;
    if (!waiting->redraws)
        waiting->pause_ms *= 2;
}

void waiting_tell(struct waiting *waiting)
{
    if (!waiting->glance && waiting_pause(waiting) == 0) {
        waiting->glance = glance_begin(waiting->client, waiting->name, waiting->bell);
        put_off(waiting);
    }
    if (!waiting->glance || !glance_over(waiting->glance, 0))
        return;
    say(waiting, waiting->glance);
    glance_end(waiting->glance);
    waiting->glance = NULL;
}

void waiting_end(struct waiting *waiting)
{
    glance_end(waiting->glance);
    if (waiting->drawn)
        dprintf(STDERR_FILENO, "\r\033[K");
    waiting->drawn = false;
}
