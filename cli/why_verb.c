/* why_verb.c - the verb `why`: prints the chain of holders and waiters that keeps a lock from its
 * waiters, and says whether it is a deadlock. */
#include "json_rows.h"
#include "output.h"
#include "verb_client.h"
#include "verbs.h"
#include "wait_graph.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CIRCLE_MAX = 64 };

static const struct option_spec OPTIONS[] = {OPTION_URL, OPTION_JSON, OPTION_HELP};

/* The names that are reached from the first one, in the order of a breadth-first search. */
struct chain {
    const struct wait_graph *graph;
    const char **names;
    size_t count;
    const char *circle[CIRCLE_MAX];
    size_t circle_count; /* 0 if there is no deadlock */
};

static void add_name(struct chain *chain, const char *name)
{
    for (size_t i = 0; i < chain->count; i++)
        if (strcmp(chain->names[i], name) == 0)
            return;
    chain->names[chain->count++] = name;
}

/* Calls fn for each lock that the holder waits for. */
static void each_wait(const struct chain *chain, size_t holder,
                      void (*fn)(void *arg, const struct hf_row *waiter), void *arg)
{
    const struct row_list *rows = &chain->graph->rows;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->all[i].role == HF_WAITER && wait_graph_same_client(chain->graph, holder, i))
            fn(arg, &rows->all[i]);
}

/* Calls fn for each holder of a lock. */
static void each_holder(const struct chain *chain, const char *name,
                        void (*fn)(void *arg, size_t holder), void *arg)
{
    const struct row_list *rows = &chain->graph->rows;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->all[i].role == HF_HOLDER && strcmp(rows->all[i].name, name) == 0)
            fn(arg, i);
}

static void follow_wait(void *arg, const struct hf_row *waiter)
{
    add_name(arg, waiter->name);
}

static void follow_holder(void *arg, size_t holder)
{
    each_wait(arg, holder, follow_wait, arg);
}

static int find_chain(struct chain *chain, const struct wait_graph *graph, const char *name)
{
    *chain = (struct chain){.graph = graph};
    chain->names = calloc(graph->rows.count + 1, sizeof *chain->names);
    if (!chain->names)
        return fail_with(HF_NO_MEMORY);

    add_name(chain, name);
    for (size_t i = 0; i < chain->count; i++)
        each_holder(chain, chain->names[i], follow_holder, chain);
    if (!wait_graph_lock_moves(graph, name))
        chain->circle_count = wait_graph_circle(graph, name, chain->circle, CIRCLE_MAX);
    return 0;
}

/* ---- Words ---- */

static void print_client(const struct hf_row *row)
{
    printf("pid %" PRId64 "%s%s%s%s%s", row->pid, *row->host ? " on " : "",
           output_shown(row->host).text, *row->label ? " (" : "", output_shown(row->label).text,
           *row->label ? ")" : "");
}

static void print_wait(void *arg, const struct hf_row *waiter)
{
    bool *waits = arg;
    *waits = true;
    printf("    which waits for \"%s\", at place %" PRIu32 ", since %s\n",
           output_shown(waiter->name).text, waiter->place, text_duration(waiter->since_ms).text);
}

static void print_holder(void *arg, size_t holder)
{
    const struct chain *chain = arg;
    const struct hf_row *row = &chain->graph->rows.all[holder];
    bool waits = false;

    printf("  held by ");
    if (row->foreign)
        printf("another program\n");
    else {
        print_client(row);
        printf(", token %" PRIu64 ", for %s\n", row->token, text_duration(row->since_ms).text);
    }
    each_wait(chain, holder, print_wait, &waits);
    if (!waits)
        printf("    which waits for nothing\n");
}

static void print_lock(struct chain *chain, const char *name)
{
    struct shown shown = output_shown(name);
    size_t holders = 0;
    for (size_t i = 0; i < chain->graph->rows.count; i++) {
        const struct hf_row *row = &chain->graph->rows.all[i];
        holders += row->role == HF_HOLDER && strcmp(row->name, name) == 0;
    }

    printf("\"%s\"%s\n", shown.text, holders ? "" : " is not held");
    each_holder(chain, name, print_holder, chain);
}

static void print_circle(const struct chain *chain)
{
    if (chain->circle_count == 0)
        return;
    printf("deadlock:");
    for (size_t i = 0; i < chain->circle_count; i++)
        printf("%s the holder of \"%s\" waits for \"%s\"", i ? "," : "",
               output_shown(chain->circle[i]).text,
               output_shown(chain->circle[(i + 1) % chain->circle_count]).text);
    printf("\n");
    printf("What to do: end one of the processes, or revoke one of the holds: holdfast break NAME "
           "--token N --reason TEXT\n");
}

static void print_words(struct chain *chain)
{
    for (size_t i = 0; i < chain->count; i++)
        print_lock(chain, chain->names[i]);
    print_circle(chain);
}

/* ---- JSON ---- */

static void print_json_wait(void *arg, const struct hf_row *waiter)
{
    const char **comma = arg;
    fputs(*comma, stdout);
    json_print_text(stdout, waiter->name);
    *comma = ",";
}

struct json_links {
    const struct chain *chain;
    const char *comma;
};

static void print_json_link(void *arg, size_t holder)
{
    struct json_links *links = arg;
    const char *comma = "";
    printf("%s\n{\"holder\":", links->comma);
    json_print_row(&links->chain->graph->rows.all[holder]);
    printf(",\"waitsFor\":[");
    each_wait(links->chain, holder, print_json_wait, &comma);
    printf("]}");
    links->comma = ",";
}

static const char *state_of(const struct chain *chain)
{
    bool is_held = false;
    for (size_t i = 0; i < chain->graph->rows.count; i++) {
        const struct hf_row *row = &chain->graph->rows.all[i];
        is_held |= row->role == HF_HOLDER && strcmp(row->name, chain->names[0]) == 0;
    }
    if (chain->circle_count > 0)
        return "deadlock";
    return is_held ? "held" : "free";
}

static void print_json(const struct chain *chain)
{
    struct json_links links = {chain, ""};
    printf("{\"name\":");
    json_print_text(stdout, chain->names[0]);
    printf(",\"state\":\"%s\",\"circle\":[", state_of(chain));
    for (size_t i = 0; i < chain->circle_count; i++) {
        fputs(i ? "," : "", stdout);
        json_print_text(stdout, chain->circle[i]);
    }

    printf("],\"chain\":[");
    for (size_t i = 0; i < chain->count; i++)
        each_holder(chain, chain->names[i], print_json_link, &links);
    printf("]}\n");
}

/* ---- The verb ---- */

static int explain_wait(const struct cli_options *options, hf_client *client, const char *name)
{
    struct wait_graph graph;
    struct chain chain = {0};
    int code = wait_graph_read(&graph, client);
    if (code == 0)
        code = find_chain(&chain, &graph, name);
    if (code == 0 && options->json)
        print_json(&chain);
    else if (code == 0)
        print_words(&chain);

    if (code == 0)
        code = finish_stdout();
    if (code == 0 && chain.circle_count > 0)
        code = EXIT_DEADLOCK;
    free(chain.names);
    wait_graph_free(&graph);
    return code;
}

static int run_why(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    int code = check_operands(&VERB_WHY, argc, argv, 1, 1);
    if (code == 0)
        code = verb_client_open(options, NULL, &client);
    return code == 0 ? verb_client_close(client, explain_wait(options, client, argv[0])) : code;
}

const struct verb VERB_WHY = {
    .name = "why",
    .operands = "NAME",
    .summary = "Says who keeps NAME from its waiters: who holds it, what the holder waits for, and "
               "so on.",
    .details =
        "The chain follows everything that the engine lists. A holder and a waiter are the same\n"
        "client if host and pid are equal, or if the waiter runs under the holder on this "
        "machine.\n"
        "Detached holds, such as those of a service, have no known client.\n"
        "If the chain is a circle, nobody in it can go on: a deadlock.\n\n"
        "Exit codes: 0 if there is no deadlock, 80 if NAME can never be released because of one.\n"
        "With --json: one object with the keys name, state, circle and chain (docs/json.md).\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_why,
};
