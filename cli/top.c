/* top.c - the verb `top`: draws holders, the time left as a bar, and waiters, twice a second, and
 * obeys keys.
 *
 * It lists the engine each time instead of watching for changes, because a renewal is no change and
 * the bar must show it. */
#include "top.h"
#include "output.h"
#include "screen.h"
#include "signals.h"
#include "sort_by_urgency.h"
#include "top_lines.h"
#include "verb_client.h"
#include "verbs.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_MS 500
#define ENDED_BY_KEY (-1)

enum mode { MODE_ALL, MODE_LOCK, MODE_HELP };
enum { KEY_NONE, KEY_ESCAPE = 27, KEY_UP = 256, KEY_DOWN, KEY_PAGE_UP, KEY_PAGE_DOWN };

/* The hold that the key b asks about: the user must confirm that it is revoked. */
struct question {
    bool open;
    char name[HF_NAME_MAX + 1];
    uint64_t token;
    char text[512];
};

struct top {
    hf_client *client;
    const char *verb, *prefix;
    struct screen screen;
    struct signals taken;
    int signals, stops;
    bool colour;
    enum mode mode;
    enum row_order order;
    char filter[64];
    bool types_filter; /* the user types a filter, and keys are added to it */
    long chosen;       /* index of the chosen line: in MODE_ALL a lock, in MODE_LOCK a row */
    size_t first;      /* first line that is shown */
    char name[HF_NAME_MAX + 1]; /* MODE_LOCK: name of the lock that is shown */
    struct question question;
    char message[512]; /* outcome of the last break */
    size_t columns, lines;
    struct row_list rows; /* the rows that are on the screen */
    struct top_lines text;
};

/* ---- Drawing ---- */

/* Prints one line, cut to the terminal's width. The colour takes no column. */
static void put_line(const struct top *top, const char *colour, bool chosen, char *text)
{
    size_t columns = top->columns;
    char *end = text;
    for (; *end; end++) {
        bool begins = ((unsigned char)*end & 0xc0) != 0x80;
        if (begins && columns-- == 0)
            break;
    }
    *end = 0;

    const char *mark = chosen && top->colour ? "\033[7m" : "";
    printf("%s%s%s%s\033[K\r\n", top->colour ? colour : "", mark, text,
           top->colour ? "\033[0m" : "");
}

static void put_summary(struct top *top)
{
    static const char *const orders[] = {"urgency", "name", "waiters", "oldest hold", "time left"};
    char text[TOP_LINE_BYTES];
    struct timespec now;
    size_t holders = 0;

    for (size_t i = 0; i < top->rows.count; i++)
        holders += top->rows.all[i].role == HF_HOLDER;
    size_t waiters = top->rows.count - holders;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text,
             "holdfast %s %.400s  %.40s  %zu holder%s, %zu waiter%s; by %s%s%.200s; ? help",
             top->verb, top->prefix ? output_shown(top->prefix).text : "",
             text_time((int64_t)now.tv_sec * 1000).text, holders, holders == 1 ? "" : "s", waiters,
             waiters == 1 ? "" : "s", orders[top->order], *top->filter ? ", with " : "",
             output_shown(top->filter).text);
    put_line(top, "", false, text);
}

/* Prints the last line: a question, the filter that is typed, or the outcome of a break. */
static void put_footer(struct top *top)
{
    char text[TOP_LINE_BYTES] = "";
    if (top->question.open)
        snprintf(text, sizeof text, "%s", top->question.text);
    else if (top->types_filter)
        snprintf(text, sizeof text, "/%s", output_shown(top->filter).text);
    else
        snprintf(text, sizeof text, "%s", top->message);
    if (*text)
        put_line(top, "\033[33m", false, text);
}

static bool is_chosen(const struct top *top, const struct top_line *line)
{
    if (top->mode == MODE_ALL)
        return line->lock == top->chosen && line->row == TOP_NO_LOCK;
    return top->mode == MODE_LOCK && line->row == top->chosen;
}

/* Scrolls so that the chosen line is on the screen. */
static void scroll(struct top *top, size_t room)
{
    size_t at = top->first;
    for (size_t i = 0; i < top->text.count; i++)
        if (is_chosen(top, &top->text.all[i]))
            at = i;
    if (at < top->first)
        top->first = at;
    if (room > 0 && at >= top->first + room)
        top->first = at - room + 1;
    if (top->first + room > top->text.count)
        top->first = top->text.count > room ? top->text.count - room : 0;
}

static void draw_screen(struct top *top)
{
    screen_size(&top->columns, &top->lines);
    size_t room = top->lines > 3 ? top->lines - 3 : 0;
    scroll(top, room);

    fputs("\033[H", stdout);
    put_summary(top);
    for (size_t i = top->first; i < top->text.count && i < top->first + room; i++) {
        struct top_line *line = &top->text.all[i];
        bool marked = is_chosen(top, line) && top->text.locks > 1;
        put_line(top, line->colour, marked || (top->mode == MODE_LOCK && is_chosen(top, line)),
                 line->text);
    }
    put_footer(top);
    fputs("\033[J", stdout);
}

/* ---- Reading ---- */

static hf_status read_rows(struct top *top, struct row_list *past)
{
    if (top->mode != MODE_LOCK)
        return hf_list(top->client, top->prefix, row_list_add, &top->rows);
    hf_status status = hf_show(top->client, top->name, row_list_add, &top->rows);
    if (status == HF_OK && hf_history(top->client, top->name, row_list_add, past) != HF_OK)
        past->count = 0;
    return status;
}

static void write_lines(struct top *top, const struct row_list *past)
{
    if (top->mode == MODE_HELP)
        top_lines_add_help(&top->text);
    else if (top->mode == MODE_LOCK)
        top_lines_add_lock(&top->text, top->name, &top->rows, past);
    else
        top_lines_add_locks(&top->text, &top->rows, top->filter);

    long most = top->mode == MODE_LOCK ? (long)top->rows.count : top->text.locks;
    if (top->chosen >= most)
        top->chosen = most > 0 ? most - 1 : 0;
}

/* Reads the engine and draws. Returns 0, or an exit code after a message. */
static int draw(struct top *top)
{
    struct row_list past = {0};
    row_list_free(&top->rows);
    top_lines_free(&top->text);
    hf_status status = read_rows(top, &past);
    bool failed = status != HF_OK || top->rows.out_of_memory;
    if (failed)
        screen_leave(&top->screen);
    int code = row_list_check(&top->rows, status);
    if (code == 0 && top->mode == MODE_ALL && !sort_rows(&top->rows, top->order))
        code = EXIT_INTERNAL;

    if (code == 0) {
        write_lines(top, &past);
        draw_screen(top);
        code = finish_stdout();
    }
    row_list_free(&past);
    return code;
}

/* ---- Keys ---- */

/* Reads a key, with arrows and pages as one. Returns KEY_NONE at the end of stdin. */
static int read_key(void)
{
    char bytes[8] = "";
    ssize_t got = read(STDIN_FILENO, bytes, 1);
    if (got != 1)
        return KEY_NONE;
    struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
    if (bytes[0] != KEY_ESCAPE || poll(&more, 1, 20) != 1)
        return (unsigned char)bytes[0];

    got = read(STDIN_FILENO, bytes + 1, 2);
    if (got != 2 || bytes[1] != '[')
        return KEY_ESCAPE;
    switch (bytes[2]) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case '5':
    case '6':
        (void)!read(STDIN_FILENO, bytes + 3, 1);
        return bytes[2] == '5' ? KEY_PAGE_UP : KEY_PAGE_DOWN;
    default:
        return KEY_ESCAPE;
    }
}

/* Returns the row of the first line of the chosen lock or hold, or NULL. */
static const struct hf_row *chosen_row(const struct top *top)
{
    if (top->mode == MODE_LOCK)
        return top->chosen < (long)top->rows.count ? &top->rows.all[top->chosen] : NULL;
    for (size_t i = 0; i < top->text.count; i++) {
        const struct top_line *line = &top->text.all[i];
        if (line->lock == top->chosen && line->row != TOP_NO_LOCK)
            return &top->rows.all[line->row];
    }
    return NULL;
}

static size_t count_holders(const struct top *top, const char *name)
{
    size_t holders = 0;
    for (size_t i = 0; i < top->rows.count; i++) {
        const struct hf_row *row = &top->rows.all[i];
        holders += row->role == HF_HOLDER && strcmp(row->name, name) == 0;
    }
    return holders;
}

static void open_lock(struct top *top)
{
    const struct hf_row *row = top->mode == MODE_ALL ? chosen_row(top) : NULL;
    if (!row)
        return;
    snprintf(top->name, sizeof top->name, "%s", row->name);
    top->mode = MODE_LOCK;
    top->chosen = 0;
    top->first = 0;
}

static void go_back(struct top *top)
{
    if (top->mode == MODE_ALL)
        top->filter[0] = 0;
    top->mode = MODE_ALL;
    top->chosen = 0;
    top->first = 0;
}

/* Asks before the chosen hold is revoked. If a lock has several holders, the user chooses one of
 * them first. */
static void ask_break(struct top *top)
{
    const struct hf_row *row = chosen_row(top);
    if (!row || row->role != HF_HOLDER || row->foreign) {
        snprintf(top->message, sizeof top->message, "no hold is chosen");
        return;
    }
    if (top->mode == MODE_ALL && count_holders(top, row->name) > 1) {
        open_lock(top);
        snprintf(top->message, sizeof top->message, "several hold it: choose one, then b");
        return;
    }

    struct question *question = &top->question;
    question->open = true;
    question->token = row->token;
    snprintf(question->name, sizeof question->name, "%s", row->name);
    snprintf(question->text, sizeof question->text,
             "revoke \"%.150s\" of pid %" PRId64 "%s%.60s%s%.80s%s, token %" PRIu64
             ", held for %.40s? y/n",
             output_shown(row->name).text, row->pid, *row->host ? " on " : "",
             output_shown(row->host).text, *row->label ? " (" : "", output_shown(row->label).text,
             *row->label ? ")" : "", row->token, text_duration(row->since_ms).text);
}

static void answer_break(struct top *top, int key)
{
    struct question *question = &top->question;
    question->open = false;
    top->message[0] = 0;
    if (key != 'y' && key != 'Y')
        return;
    hf_status status = hf_break(top->client, question->name, question->token, "holdfast top");
    if (status == HF_OK)
        snprintf(top->message, sizeof top->message, "revoked \"%.200s\", token %" PRIu64,
                 output_shown(question->name).text, question->token);
    else
        snprintf(top->message, sizeof top->message, "not revoked: %.300s", hf_error_text());
}

static void type_filter(struct top *top, int key)
{
    size_t len = strlen(top->filter);
    bool erases = key == 127 || key == '\b';
    bool is_text = key >= 0x20 && key < 256 && !erases;
    if (key == '\r' || key == '\n' || key == KEY_ESCAPE) {
        if (key == KEY_ESCAPE)
            top->filter[0] = 0;
        top->types_filter = false;
    } else if (erases && len > 0) {
        top->filter[len - 1] = 0;
    } else if (is_text && len + 1 < sizeof top->filter) {
        top->filter[len] = (char)key;
        top->filter[len + 1] = 0;
    }
    top->chosen = 0;
}

static void choose(struct top *top, long by)
{
    top->chosen += by;
    if (top->chosen < 0)
        top->chosen = 0;
}

/* Handles a key while no question is open on the screen. Returns true for q. */
static bool obey(struct top *top, int key)
{
    top->message[0] = 0;
    switch (key) {
    case 'q':
        return true;
    case KEY_UP:
    case 'k':
        choose(top, -1);
        break;
    case KEY_DOWN:
    case 'j':
        choose(top, 1);
        break;
    case KEY_PAGE_UP:
        choose(top, -(long)top->lines / 2);
        break;
    case KEY_PAGE_DOWN:
        choose(top, (long)top->lines / 2);
        break;
    case 'g':
        top->chosen = 0;
        break;
    case 'G':
        top->chosen = INT32_MAX;
        break;
    case '\r':
    case '\n':
        open_lock(top);
        break;
    case KEY_ESCAPE:
    case '\b':
    case 127:
        go_back(top);
        break;
    case '/':
        go_back(top);
        top->filter[0] = 0;
        top->types_filter = true;
        break;
    case 's':
        top->order = (enum row_order)((top->order + 1) % (ORDER_LEFT + 1));
        break;
    case '?':
        top->mode = MODE_HELP;
        top->first = 0;
        break;
    case 'b':
        ask_break(top);
        break;
    default:
        break;
    }
    return false;
}

/* ---- The loop ---- */

/* Handles Ctrl-Z: the shell has the terminal until this process is continued. */
static void stop_for_a_while(struct top *top)
{
    screen_leave(&top->screen);
    signals_stop();
    screen_enter(&top->screen);
}

/* Returns what ends the view: 0 if nothing does, ENDED_BY_KEY for the key q or the end of stdin,
 * otherwise a signal. */
static int receive(struct top *top, const struct pollfd *keys)
{
    if (signals_stop_pending())
        stop_for_a_while(top);
    for (int number; (number = signals_next(top->signals, NULL)) != 0;)
        if (signals_ends_wait(number))
            return number;
    if (!(keys->revents & (POLLIN | POLLHUP | POLLERR)))
        return 0;

    int key = read_key();
    if (key == KEY_NONE)
        return ENDED_BY_KEY;
    if (top->question.open)
        answer_break(top, key);
    else if (top->types_filter)
        type_filter(top, key);
    else if (obey(top, key))
        return ENDED_BY_KEY;
    return 0;
}

static int show_until_end(struct top *top)
{
    enum { SIGNALS, STOPS, KEYS };
    struct pollfd ready[] = {
        [SIGNALS] = {.fd = top->signals, .events = POLLIN},
        [STOPS] = {.fd = top->stops, .events = POLLIN},
        [KEYS] = {.fd = top->screen.keys ? STDIN_FILENO : -1, .events = POLLIN}};
    int code, ended = 0;

    while ((code = draw(top)) == 0 && ended == 0) {
        ready[KEYS].revents = 0;
        poll(ready, sizeof ready / sizeof ready[0], REDRAW_MS);
        ended = receive(top, &ready[KEYS]);
    }
    if (code == 0 && ended > 0)
        code = 128 + ended;
    return code;
}

int top_run(hf_client *client, const char *verb, const char *prefix, int64_t order)
{
    struct top top = {.client = client,
                      .verb = verb,
                      .prefix = prefix,
                      .order = (enum row_order)order,
                      .colour = text_may_colour(STDOUT_FILENO)};
    signals_take(&top.taken);
    top.signals = signals_open(&top.taken);
    top.stops = signals_open_stop();
    if (top.signals < 0 || top.stops < 0) {
        complain("cannot watch for signals: %s", strerror(errno));
        return EXIT_INTERNAL;
    }

    screen_enter(&top.screen);
    int code = show_until_end(&top);
    screen_leave(&top.screen);
    row_list_free(&top.rows);
    top_lines_free(&top.text);
    return code;
}

/* ---- The verb ---- */

static const struct option_spec OPTIONS[] = {
    {"sort", 0, ROW_ORDERS, STORE_CHOICE, OPTION_FIELD(sort), 0, 0,
     "order of the names; default: urgency"},
    OPTION_URL,
    OPTION_HELP,
};

static int run_top(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    const char *terminal = getenv("TERM");
    bool is_dumb = !terminal || !*terminal || strcmp(terminal, "dumb") == 0;
    int code = check_operands(&VERB_TOP, argc, argv, 0, 1);
    if (code == 0 && (is_dumb || !isatty(STDOUT_FILENO))) {
        complain("top needs a terminal; `list` prints once, `watch` prints each change");
        code = EXIT_USAGE;
    }
    if (code == 0)
        code = verb_client_open(options, NULL, &client);
    if (code != 0)
        return code;
    return verb_client_close(client,
                             top_run(client, "top", argc > 0 ? argv[0] : NULL, options->sort));
}

const struct verb VERB_TOP = {
    .name = "top",
    .operands = "[PREFIX]",
    .summary = "Shows holders and waiters live, with keys to filter, sort, look closer and revoke.",
    .details =
        "Keys: arrows or j and k choose, Enter shows one lock with its queue and past holds,\n"
        "/ filters, s sorts, b revokes the chosen hold after a question, ? helps, q ends.\n"
        "The bar is the part of the ttl that is left; a renewal fills it again.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_top,
};
