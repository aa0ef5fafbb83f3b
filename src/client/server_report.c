/* server_report.c - hf_diagnose, hf_show_servers and the care for libraries inside servers:
 * collects the findings of the engine, then passes them to the caller's function.
 *
 * The engine reports while it holds its own lock. The caller's function runs after that, so it may
 * call the library, and no renewal waits for it. */
#include "client.h"

#include "base/error.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MOST = 5 };

struct item {
    union {
        struct hf_finding finding;
        struct hf_server_state server_state;
    };
    struct hf_row holder; /* the holder on that server; zeroes: none */
    char *texts;          /* the texts that the fields above point to */
};

struct report {
    struct item *items;
    size_t count, room;
    bool out_of_memory;
};

/* Appends a zeroed item. Returns NULL without memory. */
static struct item *next_item(struct report *report)
{
    assert(report->count <= report->room);

    if (report->count == report->room) {
        size_t room = report->room ? report->room * 2 : 16;
        struct item *items = realloc(report->items, room * sizeof *items);
        if (!items)
            return NULL;
        report->items = items;
        report->room = room;
    }

    return memset(&report->items[report->count], 0, sizeof *report->items);
}

/* Copies the texts of these fields into one block and points the fields there. Returns the block,
 * or NULL if there is no memory. */
static char *keep_texts(const char **const fields[], size_t count)
{
    assert(count <= TEXTS_MOST);

    size_t size = 0, lengths[TEXTS_MOST];
    for (size_t i = 0; i < count; i++)
        size += lengths[i] = strlen(*fields[i]) + 1;
    char *texts = malloc(size), *at = texts;
    for (size_t i = 0; texts && i < count; at += lengths[i++])
        *fields[i] = memcpy(at, *fields[i], lengths[i]);

    return texts;
}

static void add_item(struct report *report, struct item *item, const char **const fields[],
                     size_t count)
{
    assert(item == &report->items[report->count]);
    if ((item->texts = keep_texts(fields, count)))
        report->count++;
    else
        report->out_of_memory = true;
}

static void collect_finding(void *arg, const struct hf_finding *finding)
{
    struct report *report = arg;
    struct item *item = next_item(report);
    if (!item) {
        report->out_of_memory = true;
        return;
    }

    struct hf_finding *f = &item->finding;
    *f = *finding;
    add_item(report, item, (const char **const[]){&f->where, &f->what, &f->text, &f->advice}, 4);
}

static void collect_server_state(void *arg, const struct hf_server_state *server_state)
{
    struct report *report = arg;
    struct item *item = next_item(report);
    if (!item) {
        report->out_of_memory = true;
        return;
    }

    struct hf_server_state *s = &item->server_state;
    struct hf_row *h = &item->holder;
    *s = *server_state;
    if (server_state->holder)
        *h = *server_state->holder;

    add_item(report, item,
             (const char **const[]){&s->where, &s->text, &h->name, &h->host, &h->label},
             server_state->holder ? 5 : 2);
}

static void free_report(struct report *report)
{
    for (size_t i = 0; i < report->count; i++)
        free(report->items[i].texts);
    free(report->items);
}

static hf_status judge(const struct hf_client *client, const struct report *report,
                       hf_status status)
{
    if (status == HF_OK && report->out_of_memory)
        return error_set(HF_NO_MEMORY, "%s: no memory for the report of the servers", client->url);
    return status;
}

/* Passes the findings on, frees the report, and returns the status. */
static hf_status deliver_findings(const struct hf_client *client, struct report *report,
                                  hf_status status, hf_finding_fn *fn, void *arg)
{
    char failure_text[ERROR_TEXT_MAX];

    status = judge(client, report, status);
    /* kept here, because the caller's function may change error_text() */
    strcpy(failure_text, error_text());
    for (size_t i = 0; i < report->count; i++)
        fn(arg, &report->items[i].finding);
    free_report(report);
    return status == HF_OK ? HF_OK : error_set(status, "%s", failure_text);
}

hf_status client_diagnose(struct hf_client *client, hf_finding_fn *fn, void *arg)
{
    assert(client->type->diagnose);

    struct report report = {0};
    hf_status status =
        client->type->diagnose(client->engine, clock_boot(), collect_finding, &report);
    return deliver_findings(client, &report, status, fn, arg);
}

static hf_status care_for_library(struct hf_client *client, enum admin_verb verb,
                                  const char *in_use, hf_finding_fn *fn, void *arg)
{
    struct report report = {0};
    hf_status status = client->type->care_for_library(client->engine, verb, in_use, clock_boot(),
                                                      collect_finding, &report);
    return deliver_findings(client, &report, status, fn, arg);
}

hf_status client_install_library(struct hf_client *client, hf_finding_fn *fn, void *arg)
{
    assert(client->type->care_for_library);
    return care_for_library(client, ADMIN_INSTALL, NULL, fn, arg);
}

/* Texts of findings, separated by blanks. */
struct uses {
    char *text; /* NULL: none yet */
    bool out_of_memory;
};

static void add_uses(void *arg, const struct hf_finding *finding)
{
    struct uses *uses = arg;
    size_t len = uses->text ? strlen(uses->text) : 0, more = strlen(finding->text) + 2;
    char *text = realloc(uses->text, len + more);
    if (!text) {
        uses->out_of_memory = true;
        return;
    }
    snprintf(text + len, more, " %s", finding->text);
    uses->text = text;
}

/* Asks every server which libraries its clients use before it tells any server to remove one: a
 * client may be connected to some of the servers only. */
hf_status client_prune_libraries(struct hf_client *client, hf_finding_fn *fn, void *arg)
{
    assert(client->type->care_for_library);
    struct uses uses = {0};
    hf_status status = care_for_library(client, ADMIN_USES, NULL, add_uses, &uses);

    if (status == HF_OK && (uses.out_of_memory || !uses.text))
        status =
            error_set(HF_NO_MEMORY, "%s: no memory for the report of the servers", client->url);
    if (status == HF_OK)
        status = care_for_library(client, ADMIN_PRUNE, uses.text, fn, arg);
    free(uses.text);
    return status;
}

hf_status client_show_servers(struct hf_client *client, const char *name, hf_server_state_fn *fn,
                              void *arg)
{
    assert(client->type->list_servers);

    struct report report = {0};
    struct admin_target what = {.which = LIST_SERVERS, .name = name, .len = strlen(name)};
    hf_status status = client->type->list_servers(client->engine, &what, clock_boot(),
                                                  collect_server_state, &report);
    char failure_text[ERROR_TEXT_MAX];

    status = judge(client, &report, status);
    strcpy(failure_text, error_text());
    for (size_t i = 0; i < report.count; i++) {
        struct item *item = &report.items[i];
        if (item->server_state.holder)
            /* set now, because realloc may have moved the item */
            item->server_state.holder = &item->holder;
        fn(arg, &item->server_state);
    }

    free_report(&report);
    return status == HF_OK ? HF_OK : error_set(status, "%s", failure_text);
}
