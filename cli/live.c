/* live.c - draws who holds, how much time is left as a bar that shrinks, and who waits, twice a second.
 *
 * It looks at the engine each time instead of listening: a renewal is no event, and without it the bar would lie. */
#include "live.h"
#include "row_cells.h"
#include "screen.h"
#include "signals.h"
#include "text.h"
#include "trouble.h"
#include "verbs.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_MS 500
#define BAR_WIDTH 20
#define LINE_BYTES 2048

struct live {
    hf_client *client;
    const char *prefix;
    struct screen screen;
    struct signals taken;
    int signals, stops;
    bool colour;
    size_t columns, lines, used; /* of the terminal; lines that are written */
};

/* One line, cut to the terminal's width; what colours it takes no room. */
static void put_line(struct live *live, const char *colour, char *text)
{
    size_t columns = live->columns;
    char *end = text;
    if (live->used + 1 >= live->lines)
        return;
    live->used++;
    for (; *end; end++) {
        bool begins = ((unsigned char)*end & 0xc0) != 0x80;
        if (begins && columns-- == 0)
            break;
    }
    *end = 0;
    printf("%s%s%s\033[K\r\n", live->colour ? colour : "", text, live->colour ? "\033[0m" : "");
}

static void draw_holder(struct live *live, const struct hf_row *row)
{
    char text[LINE_BYTES], bar[BAR_WIDTH + 1];
    int64_t filled = row->ttl_ms > 0 ? (row->left_ms * BAR_WIDTH + row->ttl_ms - 1) / row->ttl_ms : 0;
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    snprintf(text, sizeof text, "  [%s] %-10s left  pid %" PRId64 "%s%.100s  held %.60s  token %" PRIu64 "%s%.400s",
             bar, text_duration(row->left_ms).text, row->pid, *row->host ? " on " : "", text_shown(row->host).text,
             text_duration(row->since_ms).text, row->token, *row->label ? "  " : "", text_shown(row->label).text);
    put_line(live, filled * 3 <= BAR_WIDTH ? "\033[31m" : "\033[32m", text);
}

static void draw_waiter(struct live *live, const struct hf_row *row)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof text, "  waiter %" PRIu32 "  pid %" PRId64 "%s%.100s  waits %.60s%s%.400s", row->place,
             row->pid, *row->host ? " on " : "", text_shown(row->host).text, text_duration(row->since_ms).text,
             *row->label ? "  " : "", text_shown(row->label).text);
    put_line(live, "\033[2m", text);
}

static void draw_name(struct live *live, const struct hf_row *row)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof text, "%s  %s  %.60s used", text_shown(row->name).text, hf_kind_name(row->kind),
             row_units_of(row, row->used).text);
    put_line(live, "\033[1m", text);
}

static void draw_top(struct live *live, size_t rows)
{
    char text[LINE_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "holdfast watch %s  %s  %zu holders and waiters; q ends",
             live->prefix ? text_shown(live->prefix).text : "", text_time((int64_t)now.tv_sec * 1000).text, rows);
    put_line(live, "", text);
}

static int draw(struct live *live)
{
    struct rows rows = {0};
    const char *name = "";
    hf_status status = hf_list(live->client, live->prefix, rows_add, &rows);
    if (status != HF_OK || rows.out_of_memory)
        screen_leave(&live->screen);
    int code = rows_check(&rows, status);
    if (code == 0 && !trouble_first(&rows))
        code = EXIT_INTERNAL;
    if (code == 0) {
        screen_size(&live->columns, &live->lines);
        live->used = 0;
        fputs("\033[H", stdout);
        draw_top(live, rows.count);
        for (size_t i = 0; i < rows.count; i++) {
            if (strcmp(name, rows.all[i].name) != 0)
                draw_name(live, &rows.all[i]);
            name = rows.all[i].name;
            rows.all[i].role == HF_HOLDER ? draw_holder(live, &rows.all[i]) : draw_waiter(live, &rows.all[i]);
        }
        fputs("\033[J", stdout);
        code = finish_stdout();
    }
    rows_free(&rows);
    return code;
}

/* Ctrl-Z: the terminal is the shell's meanwhile. */
static void stop_for_a_while(struct live *live)
{
    screen_leave(&live->screen);
    signals_stop();
    screen_enter(&live->screen);
}

/* What ends the view: 0 nothing yet, -1 the key q or the end of the keys, else a signal. */
static int hear(struct live *live, const struct pollfd *keys)
{
    char key;
    if (signals_stop_pending())
        stop_for_a_while(live);
    for (int number; (number = signals_next(live->signals, NULL)) != 0;)
        if (number != SIGWINCH && number != SIGCHLD && number != SIGCONT)
            return number;
    if (!(keys->revents & (POLLIN | POLLHUP | POLLERR)))
        return 0;
    return read(STDIN_FILENO, &key, 1) != 1 || key == 'q' ? -1 : 0;
}

int live_view(hf_client *client, const char *prefix)
{
    struct live live = {.client = client, .prefix = prefix, .colour = text_may_colour(STDOUT_FILENO)};
    enum { SIGNALS, STOPS, KEYS };
    signals_take(&live.taken);
    live.signals = signals_open(&live.taken);
    live.stops = signals_open_stop();
    if (live.signals < 0 || live.stops < 0) {
        complain("cannot watch for signals: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    screen_enter(&live.screen);
    struct pollfd ready[] = {[SIGNALS] = {.fd = live.signals, .events = POLLIN},
                             [STOPS] = {.fd = live.stops, .events = POLLIN},
                             [KEYS] = {.fd = live.screen.keys ? STDIN_FILENO : -1, .events = POLLIN}};
    int code, ended = 0;
    while ((code = draw(&live)) == 0 && ended == 0) {
        ready[KEYS].revents = 0;
        poll(ready, sizeof ready / sizeof ready[0], REDRAW_MS);
        ended = hear(&live, &ready[KEYS]);
    }
    screen_leave(&live.screen);
    return code != 0 ? code : ended > 0 ? 128 + ended : 0;
}
