/* json_rows.c - prints rows as JSON. The service prints the same objects (server/row_json.c), and
 * docs/json-schema.json describes both. */
#include "json_rows.h"
#include "output.h"
#include <inttypes.h>

static const char *boolean(bool value)
{
    return value ? "true" : "false";
}

/* Prints the keys ttlMs, pid, host and label. */
static void print_client(const struct hf_row *row)
{
    printf("\"ttlMs\":%" PRId64 ",\"pid\":%" PRId64 ",\"host\":", row->ttl_ms, row->pid);
    json_print_text(stdout, row->host);
    printf(",\"label\":");
    json_print_text(stdout, row->label);
}

/* Prints the keys place, token and leftMs: a waiter has a place, a holder the other two. */
static void print_position(const struct hf_row *row)
{
    if (row->role == HF_WAITER) {
        printf(",\"place\":%" PRIu32 ",\"token\":null,\"leftMs\":null", row->place);
        return;
    }

    printf(",\"place\":null,\"token\":");
    json_print_token(stdout, row->foreign ? 0 : row->token);
    printf(",\"leftMs\":%" PRId64, row->left_ms);
}

void json_print_row(const struct hf_row *row)
{
    printf("{\"name\":");
    json_print_text(stdout, row->name);
    printf(",\"role\":\"%s\",\"kind\":\"%s\"", row->role == HF_HOLDER ? "holder" : "waiter",
           hf_kind_name(row->kind));
    printf(",\"capacity\":%" PRIu32 ",\"used\":%" PRIu32 ",\"units\":%" PRIu32
           ",\"depth\":%" PRIu32,
           row->capacity, row->used, row->units, row->depth);
    print_position(row);

    printf(",\"sinceMs\":%" PRId64 ",", row->since_ms);
    print_client(row);
    printf(",\"detached\":%s,\"ticket\":", boolean(row->detached));
    json_print_token(stdout, row->ticket);
    printf(",\"foreign\":%s,\"servers\":", boolean(row->foreign));
    if (row->servers)
        printf("%" PRIu32 "}", row->servers);
    else
        printf("null}");
}

void json_print_hold(const struct hf_row *row)
{
    printf("{\"name\":");
    json_print_text(stdout, row->name);
    printf(",\"kind\":\"%s\",\"units\":%" PRIu32 ",\"capacity\":%" PRIu32 ",\"token\":",
           hf_kind_name(row->kind), row->units, row->capacity);
    json_print_token(stdout, row->token);
    printf(",\"outcome\":\"%s\",\"heldMs\":%" PRId64 ",\"endedMs\":%" PRId64 ",",
           row->ended == HF_OK ? "released" : "lost", row->since_ms, row->ended_ms);
    print_client(row);
    printf("}");
}

void json_print_items(const struct row_list *rows, void (*print)(const struct hf_row *row))
{
    for (size_t i = 0; i < rows->count; i++) {
        printf(i ? ",\n" : "\n");
        print(&rows->all[i]);
    }
}

void json_print_rows(const struct row_list *rows, void (*print)(const struct hf_row *row))
{
    printf("[");
    json_print_items(rows, print);
    printf(rows->count ? "\n]\n" : "]\n");
}
