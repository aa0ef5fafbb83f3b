/* server_votes.c - keeps and prints the state of a name on each server of a quorum. */
#include "server_votes.h"
#include "text_table.h"
#include <inttypes.h>

enum column { SERVER, STATE, TOKEN, LEFT, PID, HOST, LABEL, NOTE, COLUMNS };

static const char *const TITLES[COLUMNS] = {"SERVER", "STATE", "TOKEN", "LEFT",
                                            "PID",    "HOST",  "LABEL", "NOTE"};

void server_votes_add(void *arg, const struct hf_server_state *said)
{
    struct server_votes *server_votes = arg;

    if (server_votes->count == SERVER_VOTES_MAX)
        return;
    struct server_vote *server_vote = &server_votes->all[server_votes->count++];
    snprintf(server_vote->where, sizeof server_vote->where, "%s", said->where);
    snprintf(server_vote->text, sizeof server_vote->text, "%s", said->text);
    server_vote->answered = said->status == HF_OK;
    server_vote->counts = said->counts;
    server_vote->holder = server_votes->holders.count;
    if (said->holder)
        row_list_add(&server_votes->holders, said->holder);
    server_vote->held = server_votes->holders.count > server_vote->holder;
}

void server_votes_free(struct server_votes *server_votes)
{
    row_list_free(&server_votes->holders);
    server_votes->count = 0;
}

static const struct hf_row *holder_of(const struct server_votes *server_votes,
                                      const struct server_vote *server_vote)
{
    return server_vote->held ? &server_votes->holders.all[server_vote->holder] : NULL;
}

static const char *state_of(const struct server_vote *server_vote)
{
    if (!server_vote->answered)
        return "silent";
    return server_vote->held ? "held" : "free";
}

/* ---- Votes ---- */

static size_t majority(const struct server_votes *server_votes)
{
    return server_votes->count / 2 + 1;
}

/* Returns true if both rows are the same hold. Holds of other programs have no token, so they
 * all count as the same. */
static bool is_same(const struct hf_row *left, const struct hf_row *right)
{
    return left && right && left->foreign == right->foreign && left->token == right->token;
}

/* Returns the number of servers that have the same hold as this one. */
static size_t votes_of(const struct server_votes *server_votes, size_t at)
{
    const struct hf_row *holder = holder_of(server_votes, &server_votes->all[at]);
    size_t votes = 0;
    for (size_t i = 0; i < server_votes->count; i++)
        votes += is_same(holder, holder_of(server_votes, &server_votes->all[i]));
    return votes;
}

/* Returns true if this is the first server that has this hold. */
static bool is_first(const struct server_votes *server_votes, size_t at)
{
    const struct hf_row *holder = holder_of(server_votes, &server_votes->all[at]);
    for (size_t i = 0; i < at; i++)
        if (is_same(holder, holder_of(server_votes, &server_votes->all[i])))
            return false;
    return holder != NULL;
}

struct votes {
    size_t held, free, silent, useless; /* `useless`: free, but its vote does not count */
};

static struct votes count_votes(const struct server_votes *server_votes)
{
    struct votes votes = {0};

    for (size_t i = 0; i < server_votes->count; i++) {
        const struct server_vote *server_vote = &server_votes->all[i];
        if (!server_vote->answered)
            votes.silent++;
        else if (server_vote->held)
            votes.held++;
        else if (server_vote->counts)
            votes.free++;
        else
            votes.useless++;
    }

    return votes;
}

static void print_hold(const struct server_votes *server_votes, size_t at)
{
    const struct hf_row *row = holder_of(server_votes, &server_votes->all[at]);
    size_t votes = votes_of(server_votes, at);

    printf("; %zu %s ", votes, votes == 1 ? "has" : "have");
    if (row->foreign)
        printf("another program's lock");
    else
        printf("token %" PRIu64 " (pid %" PRId64 "%s%s%s%s)", row->token, row->pid,
               *row->host ? " on " : "", output_shown(row->host).text, *row->label ? ", " : "",
               output_shown(row->label).text);
}

static void print_count(size_t count, const char *one, const char *many)
{
    if (count > 0)
        printf("; %zu %s", count, count == 1 ? one : many);
}

void server_votes_print_votes(const struct server_votes *server_votes, const char *name)
{
    struct votes votes = count_votes(server_votes);
    size_t all = server_votes->count, needed = majority(server_votes);

    printf("\"%s\" is ", output_shown(name).text);
    if (votes.free == all)
        printf("free");
    else if (votes.free >= needed)
        printf("free on %zu of %zu servers", votes.free, all);
    else if (votes.held == 0)
        printf("not held, but nobody can take it: that needs %zu of %zu servers", needed, all);
    else
        printf("neither held nor free: either needs %zu of %zu servers", needed, all);
    for (size_t i = 0; i < all; i++)
        if (is_first(server_votes, i))
            print_hold(server_votes, i);

    if (votes.free < needed)
        print_count(votes.free, "is free", "are free");
    print_count(votes.useless, "is free and does not count", "are free and do not count");
    print_count(votes.silent, "is silent", "are silent");
    printf("\n");
}

/* ---- As a table ---- */

static struct shown holder_cell(const struct hf_row *row, enum column column)
{
    struct shown shown = {"-"};

    switch (column) {
    case TOKEN:
        if (!row->foreign)
            snprintf(shown.text, sizeof shown.text, "%" PRIu64, row->token);
        break;
    case LEFT:
        if (row->left_ms < 0)
            snprintf(shown.text, sizeof shown.text, "no end");
        else
            shown = text_duration(row->left_ms);
        break;
    case PID:
        if (!row->foreign)
            snprintf(shown.text, sizeof shown.text, "%" PRId64, row->pid);
        break;
    case HOST:
        return *row->host ? output_shown(row->host) : shown;
    case LABEL:
        if (row->foreign)
            snprintf(shown.text, sizeof shown.text, "(foreign: another program's lock)");
        return *row->label ? output_shown(row->label) : shown;
    default:
        break;
    }

    return shown;
}

static struct shown cell(const void *data, size_t row, size_t column)
{
    const struct server_votes *server_votes = data;
    const struct server_vote *server_vote = &server_votes->all[row];
    const struct hf_row *holder = holder_of(server_votes, server_vote);

    switch ((enum column)column) {
    case SERVER:
        return output_shown(server_vote->where);
    case STATE:
        return output_shown(state_of(server_vote));
    case NOTE:
        if (server_vote->text[0])
            return output_shown(server_vote->text);
        return output_shown(server_vote->counts ? "counts" : "-");
    default:
        return holder ? holder_cell(holder, (enum column)column) : (struct shown){"-"};
    }
}

static bool is_silent(const void *data, size_t row)
{
    return !((const struct server_votes *)data)->all[row].answered;
}

void server_votes_print(const struct server_votes *server_votes)
{
    text_table_print(&(struct text_table){.titles = TITLES,
                                          .columns = COLUMNS,
                                          .rows = server_votes->count,
                                          .data = server_votes,
                                          .cell = cell,
                                          .is_dim = is_silent});
}

/* ---- As JSON ---- */

static void print_holder(const struct hf_row *row)
{
    if (!row) {
        printf(",\"token\":null,\"leftMs\":null,\"pid\":null,\"host\":null,\"label\":null,"
               "\"foreign\":null");
        return;
    }
    if (row->foreign)
        printf(",\"token\":null,\"leftMs\":%" PRId64 ",\"pid\":null", row->left_ms);
    else
        printf(",\"token\":\"%" PRIu64 "\",\"leftMs\":%" PRId64 ",\"pid\":%" PRId64, row->token,
               row->left_ms, row->pid);
    printf(",\"host\":");
    json_print_text(stdout, row->host);
    printf(",\"label\":");
    json_print_text(stdout, row->label);
    printf(",\"foreign\":%s", row->foreign ? "true" : "false");
}

void server_votes_print_json(const struct server_votes *server_votes, const char *name,
                             size_t printed)
{
    for (size_t i = 0; i < server_votes->count; i++) {
        const struct server_vote *server_vote = &server_votes->all[i];
        printf("%s\n{\"name\":", i + printed ? "," : "");
        json_print_text(stdout, name);
        printf(",\"role\":\"server\",\"server\":");
        json_print_text(stdout, server_vote->where);
        printf(",\"state\":\"%s\",\"counts\":%s", state_of(server_vote),
               server_vote->counts ? "true" : "false");
        print_holder(holder_of(server_votes, server_vote));
        if (server_vote->held)
            printf(",\"votes\":%zu", votes_of(server_votes, i));
        else
            printf(",\"votes\":null");
        printf(",\"text\":");
        json_print_text(stdout, server_vote->text);
        printf("}");
    }
}
