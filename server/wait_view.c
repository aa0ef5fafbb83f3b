/* wait_view.c - gives each row its client, and turns what deadlock.c finds into JSON and log. */
#include "wait_view.h"
#include "deadlock.h"
#include "lease_ledger.h"
#include "leases.h"
#include "pending_acquires.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANCESTORS_MAX 32
#define CLIENT_BYTES 320

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static bool is_holder(const json_t *row)
{
    return strcmp(text_of(row, "role"), "holder") == 0;
}

/* ---- Clients: processes ---- */

/* Returns true if the process in the row is its client. */
static bool has_process(const json_t *row)
{
    bool is_bound = !json_is_true(json_object_get(row, "detached")) &&
                    !json_is_true(json_object_get(row, "foreign"));
    return is_bound && *text_of(row, "host");
}

static void print_client(const json_t *row, json_int_t pid, char text[CLIENT_BYTES])
{
    snprintf(text, CLIENT_BYTES, "%" JSON_INTEGER_FORMAT " %s", pid, text_of(row, "host"));
}

/* Returns the parent of a process by /proc/PID/stat, or 0. The parent is the fourth field, after a
 * name in parentheses. */
static json_int_t parent_of(json_int_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%" JSON_INTEGER_FORMAT "/stat", process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;

    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    const char *name_end = strrchr(text, ')');
    int parent;
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Prints the client of a waiter on this machine: its own process, or the nearest ancestor that
 * holds something. `holders` has the clients that hold. */
static void print_waiter(const json_t *row, const json_t *holders, char text[CLIENT_BYTES])
{
    json_int_t own = json_integer_value(json_object_get(row, "pid")), pid = own;

    for (size_t i = 0; i < ANCESTORS_MAX && pid > 1; i++, pid = parent_of(pid)) {
        print_client(row, pid, text);
        if (json_object_get(holders, text))
            return;
    }
    print_client(row, own, text);
}

static json_t *holding_clients(const json_t *rows)
{
    char text[CLIENT_BYTES];
    json_t *holders = json_object();

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!is_holder(row) || !has_process(row))
            continue;
        print_client(row, json_integer_value(json_object_get(row, "pid")), text);
        json_object_set_new(holders, text, json_true());
    }

    return holders;
}

json_t *wait_view_clients(const json_t *rows)
{
    char host[256] = "", text[CLIENT_BYTES];
    json_t *clients = json_array(), *holders = holding_clients(rows);

    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        bool is_near_waiter = !is_holder(row) && strcmp(text_of(row, "host"), host) == 0;
        json_int_t pid = json_integer_value(json_object_get(row, "pid"));
        /* this process has many clients */
        bool is_process = has_process(row) && pid != getpid();
        if (is_process && is_near_waiter)
            print_waiter(row, holders, text);
        else
            print_client(row, pid, text);
        json_array_append_new(clients, is_process ? json_string(text) : json_null());
    }

    json_decref(holders);
    return clients;
}

/* ---- Entries ---- */

struct entries {
    struct wait_entry *all;
    const json_t **rows; /* row of each entry; NULL for a wait through this instance */
    size_t count, room;
};

static void add_entry(struct entries *entries, const struct wait_entry *entry, const json_t *row)
{
    if (entries->count == entries->room)
        return;
    entries->rows[entries->count] = row;
    entries->all[entries->count++] = *entry;
}

/* Prints the key of a hold in the object of owners. */
static void print_hold(const char *name, uint64_t token, char text[HF_NAME_MAX + 24])
{
    snprintf(text, HF_NAME_MAX + 24, "%llu %s", (unsigned long long)token, name);
}

static void note_owner(void *owners, const struct ledger_entry *entry)
{
    char hold[HF_NAME_MAX + 24];

    print_hold(entry->name, entry->token, hold);
    json_object_set_new(owners, hold, json_string(entry->owner));
}

/* Owners of the leases that this instance granted, by hold. Empty if nobody waits as an owner,
 * because then they are of no use. */
static json_t *owners_of(const struct server *server)
{
    json_t *owners = json_object();
    const struct wait *wait = server->leases->waits;

    while (wait && !*wait->owner)
        wait = wait->next;
    if (wait)
        lease_ledger_each_owned(server->ledger, note_owner, owners);
    return owners;
}

static const char *owner_of(const json_t *owners, const json_t *row, uint64_t token)
{
    char hold[HF_NAME_MAX + 24];

    print_hold(text_of(row, "name"), token, hold);
    return is_holder(row) ? json_string_value(json_object_get(owners, hold)) : NULL;
}

static void add_rows(struct entries *entries, const json_t *rows, const json_t *clients,
                     const json_t *owners)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        uint64_t token = strtoull(text_of(row, "token"), NULL, 10);
        const char *client = json_string_value(json_array_get(clients, i));
        const char *owner = owner_of(owners, row, token);
        add_entry(entries,
                  &(struct wait_entry){.name = text_of(row, "name"),
                                       .holds = is_holder(row),
                                       .semaphore = strcmp(text_of(row, "kind"), "semaphore") == 0,
                                       .token = token,
                                       .client = client ? client : owner},
                  row);
    }
}

/* Adds those waits through this instance whose owner is known. */
static void add_waits(struct entries *entries, const struct leases *leases)
{
    for (const struct wait *wait = leases->waits; wait; wait = wait->next) {
        bool waits_as_owner = wait->phase == PHASE_LOCK && *wait->owner && wait->requesters;
        if (waits_as_owner)
            add_entry(entries, &(struct wait_entry){.name = wait->name, .client = wait->owner},
                      NULL);
    }
}

struct order {
    struct wait_entry entry;
    const json_t *row;
};

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct order *)left)->entry.name,
                  ((const struct order *)right)->entry.name);
}

/* Brings entries of one name together. */
static bool sort_entries(struct entries *entries)
{
    struct order *order = calloc(entries->count + 1, sizeof *order);

    if (!order)
        return false;

    for (size_t i = 0; i < entries->count; i++)
        order[i] = (struct order){entries->all[i], entries->rows[i]};
    qsort(order, entries->count, sizeof *order, by_name);
    for (size_t i = 0; i < entries->count; i++) {
        entries->all[i] = order[i].entry;
        entries->rows[i] = order[i].row;
    }
    free(order);

    return true;
}

static bool collect(struct entries *entries, const struct server *server, const json_t *rows,
                    const json_t *clients, const json_t *owners)
{
    size_t room = json_array_size(rows) + leases_waiting(server->leases) + 1;

    *entries = (struct entries){.all = calloc(room, sizeof *entries->all),
                                .rows = calloc(room, sizeof *entries->rows),
                                .room = room};
    if (!entries->all || !entries->rows)
        return false;

    add_rows(entries, rows, clients, owners);
    add_waits(entries, server->leases);
    return sort_entries(entries);
}

/* ---- Findings ---- */

struct findings {
    struct wait_view *view;
    const struct server *server;
    const struct entries *entries;
    /* all circles of this poll; those of them that the last poll had seen already */
    json_t *suspected, *deadlocks;
};

static void note_edge(void *arg, size_t holder, const char *name)
{
    struct findings *found = arg;
    json_t *row = (json_t *)(uintptr_t)found->entries->rows[holder];

    if (!row)
        return;
    if (!json_object_get(row, "waitsFor"))
        json_object_set_new(row, "waitsFor", json_array());
    json_array_append_new(json_object_get(row, "waitsFor"), json_string(name));
}

/* Describes the circle in words for the log. The caller frees the text. */
static char *print_circle(const struct wait_entry *const *holders, size_t count)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    for (size_t i = 0; out && i < count; i++)
        fprintf(out, "%sthe holder of \"%s\" (token %llu) waits for \"%s\"", i ? ", " : "",
                holders[i]->name, (unsigned long long)holders[i]->token,
                holders[(i + 1) % count]->name);
    if (!out || fclose(out) != 0)
        return NULL;

    return text;
}

static void log_deadlock(const struct server *server, const char *name, const char *text)
{
    const struct log_field fields[] = {{"name", name, 0}, {"text", text, 0}};
    log_event(server->log_form, HF_LOG_WARN, "deadlock", fields, sizeof fields / sizeof fields[0]);
}

enum { SEEN_ONCE = 1, SEEN_TWICE };

static void note_circle(void *arg, const struct wait_entry *const *holders, size_t count)
{
    struct findings *found = arg;
    char *text = print_circle(holders, count);
    json_t *names = json_array();

    if (!text) {
        json_decref(names);
        return;
    }

    json_t *before = json_object_get(found->view->suspected, text);
    json_object_set_new(found->suspected, text, json_integer(before ? SEEN_TWICE : SEEN_ONCE));
    if (before && json_integer_value(before) == SEEN_ONCE)
        log_deadlock(found->server, holders[0]->name, text);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(names, json_string(holders[i]->name));
    if (before)
        json_array_append(found->deadlocks, names);
    json_decref(names);
    free(text);
}

void wait_view_update(struct wait_view *view, struct server *server, json_t *rows,
                      const json_t *clients)
{
    struct entries entries;
    struct findings found = {.view = view,
                             .server = server,
                             .entries = &entries,
                             .suspected = json_object(),
                             .deadlocks = json_array()};
    const struct deadlock_report report = {note_edge, note_circle, &found};
    json_t *owners = owners_of(server);

    if (collect(&entries, server, rows, clients, owners))
        (void)deadlock_find(entries.all, entries.count, &report);

    json_decref(view->suspected);
    json_decref(view->deadlocks);
    view->suspected = found.suspected;
    view->deadlocks = found.deadlocks;
    free(entries.all);
    free(entries.rows);
    json_decref(owners);
}

/* ---- As a whole ---- */

bool wait_view_open(struct wait_view *view)
{
    *view = (struct wait_view){.suspected = json_object(), .deadlocks = json_array()};
    return view->suspected && view->deadlocks;
}

void wait_view_free(struct wait_view *view)
{
    json_decref(view->suspected);
    json_decref(view->deadlocks);
}
