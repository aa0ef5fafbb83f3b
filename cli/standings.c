/* standings.c - keeps and prints what each server of a quorum says of a name. */
#include "standings.h"
#include "table.h"
#include <inttypes.h>

enum column { SERVER, STATE, TOKEN, LEFT, PID, HOST, LABEL, NOTE, COLUMNS };

static const char *const TITLES[COLUMNS] = {"SERVER", "STATE", "TOKEN", "LEFT", "PID", "HOST", "LABEL", "NOTE"};

void standings_add(void *arg, const struct hf_standing *said)
{
    struct standings *standings = arg;
    if (standings->count == STANDINGS_MAX)
        return;
    struct standing *standing = &standings->all[standings->count++];
    snprintf(standing->where, sizeof standing->where, "%s", said->where);
    snprintf(standing->text, sizeof standing->text, "%s", said->text);
    standing->answered = said->status == HF_OK;
    standing->counts = said->counts;
    standing->holder = standings->holders.count;
    if (said->holder)
        rows_add(&standings->holders, said->holder);
    standing->held = standings->holders.count > standing->holder;
}

void standings_free(struct standings *standings)
{
    rows_free(&standings->holders);
    standings->count = 0;
}

static const struct hf_row *holder_of(const struct standings *standings, const struct standing *standing)
{
    return standing->held ? &standings->holders.all[standing->holder] : NULL;
}

static const char *state_of(const struct standing *standing)
{
    return !standing->answered ? "silent" : standing->held ? "held" : "free";
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
        return *row->host ? text_shown(row->host) : shown;
    case LABEL:
        if (row->foreign)
            snprintf(shown.text, sizeof shown.text, "(foreign: another program's lock)");
        return *row->label ? text_shown(row->label) : shown;
    default:
        break;
    }
    return shown;
}

static struct shown cell(const void *data, size_t row, size_t column)
{
    const struct standings *standings = data;
    const struct standing *standing = &standings->all[row];
    const struct hf_row *holder = holder_of(standings, standing);
    switch ((enum column)column) {
    case SERVER:
        return text_shown(standing->where);
    case STATE:
        return text_shown(state_of(standing));
    case NOTE:
        return text_shown(standing->text[0] ? standing->text : standing->counts ? "counts" : "-");
    default:
        return holder ? holder_cell(holder, (enum column)column) : (struct shown){"-"};
    }
}

static bool is_silent(const void *data, size_t row)
{
    return !((const struct standings *)data)->all[row].answered;
}

void standings_print(const struct standings *standings)
{
    table_print(&(struct table){.titles = TITLES,
                                .columns = COLUMNS,
                                .rows = standings->count,
                                .data = standings,
                                .cell = cell,
                                .is_dim = is_silent});
}

/* ---- As JSON ---- */

static void print_holder(const struct hf_row *row)
{
    if (!row) {
        printf(",\"token\":null,\"left_ms\":null,\"pid\":null,\"host\":null,\"label\":null,\"foreign\":null");
        return;
    }
    if (row->foreign)
        printf(",\"token\":null,\"left_ms\":%" PRId64 ",\"pid\":null", row->left_ms);
    else
        printf(",\"token\":%" PRIu64 ",\"left_ms\":%" PRId64 ",\"pid\":%" PRId64, row->token, row->left_ms, row->pid);
    printf(",\"host\":");
    json_print_text(stdout, row->host);
    printf(",\"label\":");
    json_print_text(stdout, row->label);
    printf(",\"foreign\":%s", row->foreign ? "true" : "false");
}

void standings_print_json(const struct standings *standings, const char *name, size_t printed)
{
    for (size_t i = 0; i < standings->count; i++) {
        const struct standing *standing = &standings->all[i];
        printf("%s\n{\"name\":", i + printed ? "," : "");
        json_print_text(stdout, name);
        printf(",\"role\":\"server\",\"server\":");
        json_print_text(stdout, standing->where);
        printf(",\"state\":\"%s\",\"counts\":%s", state_of(standing), standing->counts ? "true" : "false");
        print_holder(holder_of(standings, standing));
        printf(",\"text\":");
        json_print_text(stdout, standing->text);
        printf("}");
    }
}
