/* standing.c - the refusal of a lock that is held: who holds it, who waits, when to come again. */
#include "leases.h"
#include "rows.h"

static void note_row(void *arg, const struct hf_row *row)
{
    struct standing *standing = arg;
    if (row->role == HF_WAITER) {
        standing->waiters++;
        return;
    }
    if (row->left_ms >= 0 && (standing->left_ms < 0 || row->left_ms < standing->left_ms))
        standing->left_ms = row->left_ms;
    if (!standing->holder)
        standing->holder = row_json(row);
}

void standing_read(hf_client *client, const char *name, struct standing *standing)
{
    *standing = (struct standing){.left_ms = -1};
    if (hf_show(client, name, note_row, standing) != HF_OK)
        standing->left_ms = -1;
}

void answer_busy(struct exchange *x, const struct standing *standing, const char *detail, json_t *extra)
{
    int64_t again_ms = standing->left_ms > 0 ? standing->left_ms : 1000;
    json_t *all = extra ? extra : json_object();
    json_object_set_new(all, "retryAfterMs", json_integer(again_ms));
    json_object_set_new(all, "place", json_integer((json_int_t)standing->waiters + 1));
    json_object_set_new(all, "waiters", json_integer(standing->waiters));
    json_object_set_new(all, "holder", standing->holder ? standing->holder : json_null());
    int64_t seconds = (again_ms + 999) / 1000;
    exchange_field(x, "Retry-After", "%lld", (long long)(seconds < 1 ? 1 : seconds));
    answer_problem(x, 409, "busy", detail, all);
}
