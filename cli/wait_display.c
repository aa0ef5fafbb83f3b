/* wait_display.c - prints who holds the lock while `run` or `acquire` waits. */
#include "wait_display.h"
#include "held.h"
#include "holder_text.h"
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_MS 200    /* no line is printed if the lock is granted before that */
#define REDRAW_MS 500   /* pause between two lines on a terminal */
#define REPEAT_MS 10000 /* elsewhere: pause before the second line; it doubles each time */
#define COLUMNS_UNKNOWN 80

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void wait_display_begin(struct wait_display *waiting, const char *name,
                        const struct terminal *terminal, hf_client *client,
                        const struct lock_request *lock_request)
{
    *waiting = (struct wait_display){.client = client,
                                     .name = name,
                                     .lock_request = lock_request,
                                     .terminal = terminal,
                                     .redraws = isatty(STDERR_FILENO)};
    bool forever = lock_request->connect_wait_ms == HF_FOREVER;
    waiting->give_up_ms = forever ? INT64_MAX : now_ms() + lock_request->connect_wait_ms;
    waiting->first = held_mentions(name);
    waiting->next_ms = now_ms() + (waiting->first ? 0 : FIRST_MS);
    waiting->pause_ms = waiting->redraws ? REDRAW_MS : REPEAT_MS;
}

int64_t wait_display_pause(const struct wait_display *waiting)
{
    bool needs_lookup = !waiting->reached || !waiting->lock_request->quiet;
    bool is_idle = !needs_lookup && !held_mentions(waiting->name);
    if (is_idle || waiting->holder_lookup) /* a lookup in flight wakes the caller when it is done */
        return INT32_MAX;

    int64_t due = waiting->next_ms;
    if (!waiting->reached && waiting->give_up_ms < due)
        due = waiting->give_up_ms;
    int64_t pause = due - now_ms();
    return pause > 0 ? pause : 0;
}

/* Notes whether the engine answers. A host that does not exist ends the wait at once; any other
 * silence ends it after --connect-wait. */
static void note_answer(struct wait_display *waiting, const struct holder_lookup *holder_lookup)
{
    hf_status status = holder_lookup->status;
    bool is_silent = status == HF_UNAVAILABLE || status == HF_IN_DOUBT;
    waiting->reached |= !is_silent;
    if (waiting->reached)
        return;

    snprintf(waiting->failure, sizeof waiting->failure, "%s", holder_lookup->words);
    waiting->timed_out = now_ms() >= waiting->give_up_ms;
    waiting->gave_up = waiting->timed_out || strstr(holder_lookup->words, "no such host") != NULL;
}

/* Cuts a text to the terminal's width, because a wrapped line cannot be redrawn. */
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

static void draw(struct wait_display *waiting, char *line)
{
    bool colour = text_may_colour(STDERR_FILENO);

    /* A background job must not write over the user's prompt. */
    if (waiting->terminal->fd >= 0 && !terminal_is_ours(waiting->terminal))
        return;
    fit(line);
    dprintf(STDERR_FILENO, "\r%s%s%s\033[K", colour ? "\033[33m" : "", line,
            colour ? "\033[0m" : "");
    waiting->drawn = true;
}

static void describe(const struct holder_lookup *holder_lookup, char *line, size_t room)
{
    size_t waiters;

    if (holder_lookup->status != HF_OK)
        snprintf(line, room, "waiting for \"%s\" (%.300s)", output_shown(holder_lookup->name).text,
                 holder_lookup->words);
    else if (holder_text_include_us(&holder_lookup->rows))
        snprintf(line, room,
                 "waiting: the server has granted \"%s\" to this process; the confirmation is on "
                 "its way",
                 output_shown(holder_lookup->name).text);
    else
        snprintf(line, room, "waiting: %s",
                 holder_text_describe(holder_lookup->name, &holder_lookup->rows).text);
    uint32_t place = holder_text_place(&holder_lookup->rows, getpid(), &waiters);
    size_t full = strlen(line);
    if (place > 0)
        snprintf(line + full, room - full, "; our place %" PRIu32 " of %zu", place, waiters);
}

static void say(struct wait_display *waiting, const struct holder_lookup *holder_lookup)
{
    char line[1280];
    describe(holder_lookup, line, sizeof line);
    if (waiting->redraws)
        draw(waiting, line);
    else
        complain("%s", line);
}

/* Checks whether an outer run holds the lock, so that the wait would never end. A request of the
 * same owner or of one more reader may be granted beside that run; then only a place in the
 * queue shows that it waits. */
static void check_for_ours(struct wait_display *waiting, const struct holder_lookup *holder_lookup)
{
    const struct lock_request *lock_request = waiting->lock_request;
    size_t waiters;
    bool may_share = lock_request->has_owner || lock_request->kind == HF_READ;
    bool waits = !may_share || holder_text_place(&holder_lookup->rows, getpid(), &waiters) > 0;

    if (holder_lookup->status == HF_OK && waits)
        waiting->ours = held_in_the_way(holder_lookup->name, &holder_lookup->rows,
                                        lock_request->kind, lock_request->units);
}

static void put_off(struct wait_display *waiting)
{
    waiting->next_ms = now_ms() + (waiting->first ? FIRST_MS : waiting->pause_ms);
    if (!waiting->redraws && !waiting->first)
        waiting->pause_ms *= 2;
}

void wait_display_update(struct wait_display *waiting)
{
    if (!waiting->holder_lookup && wait_display_pause(waiting) == 0) {
        waiting->holder_lookup =
            holder_lookup_begin(waiting->client, waiting->name, waiting->lock_request->wake_fd);
        put_off(waiting);
        waiting->timed_out = !waiting->holder_lookup && now_ms() >= waiting->give_up_ms;
        waiting->gave_up = waiting->timed_out;
    }
    if (!waiting->holder_lookup || !holder_lookup_done(waiting->holder_lookup, 0))
        return;

    check_for_ours(waiting, waiting->holder_lookup);
    note_answer(waiting, waiting->holder_lookup);
    bool has_nothing_to_say = waiting->first || waiting->ours || waiting->gave_up;
    bool silent = waiting->lock_request->quiet || has_nothing_to_say;
    if (!silent)
        say(waiting, waiting->holder_lookup);
    waiting->first = false;
    holder_lookup_end(waiting->holder_lookup);
    waiting->holder_lookup = NULL;
}

void wait_display_end(struct wait_display *waiting)
{
    holder_lookup_end(waiting->holder_lookup);
    if (waiting->drawn)
        dprintf(STDERR_FILENO, "\r\033[K");
    waiting->drawn = false;
}
