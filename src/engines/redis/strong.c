/* strong.c - grants that count only when replicas have acknowledged them.
 *
 * The write and the WAIT behind it go out on one connection that carries nothing else, because WAIT vouches for the
 * writes of its own connection: on another one it has been seen to answer 1 with the only replica stopped. WAIT is sent
 * only behind a grant. A grant that too few acknowledged is given back on the same connection, so that nothing of it
 * comes later; a renewal without them counts for nothing, and the time that is shown stays as it was. */
#include "redis.h"

#include <stdio.h>

void hf_strong_wait(struct hf_redis *r, struct attempt *a, const struct hf_news *news, hf_nanos now)
{
    struct hf_command *c = &r->command;
    a->held_back = *news;
    hf_command_begin(c, r->synced ? 4 : 3);
    hf_command_text(c, r->synced ? "WAITAOF" : "WAIT");
    if (r->synced)
        hf_command_number(c, 1);
    hf_command_number(c, r->replicas);
    hf_command_number(c, r->replica_timeout_ms);
    struct request request = {
        .kind = REQ_WAIT, .attempt = a, .patience = HF_MS(r->replica_timeout_ms) + a->timing.op_timeout};
    if (hf_line_send(r, &r->line[LINE_STRONG], request, now))
        a->ask->lines |= 1u << LINE_STRONG;
    else
        hf_attempt_fail(r, a, news->asked_at, HF_NO_MEMORY, "no memory to send");
}

static void give_back(struct hf_redis *r, const struct attempt *a, hf_nanos now)
{
    struct hf_keys keys;
    if (hf_keys_of(&keys, r->prefix, a->said.name, a->said.name_len) != HF_OK)
        return;
    hf_attempt_script(r, HF_SCRIPT_RELEASE, &keys, 6);
    hf_command_word(&r->command, a->id, HF_ID_TEXT);
    hf_command_text(&r->command, "r");
    hf_command_text(&r->command, "0");
    hf_command_number(&r->command, a->said.history);
    hf_command_number(&r->command, a->said.history_age_ms);
    hf_command_text(&r->command, "-");
    hf_line_send(r, &r->line[LINE_STRONG], (struct request){.kind = REQ_UNDO, .patience = r->connect_timeout}, now);
}

/* WAIT: a number. WAITAOF: {1 if our own file has it, number}. */
void hf_strong_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now)
{
    struct attempt *a = request->attempt;
    struct hf_news news = a->held_back;
    char text[200];
    if (reply->type == HF_REPLY_ERROR) {
        struct refusal refusal = hf_refusal(r, reply);
        give_back(r, a, now);
        hf_attempt_fail(r, a, news.asked_at, refusal.status, refusal.text);
        return;
    }
    int64_t acknowledged = hf_reply_count(r->synced ? hf_reply_item(reply, 1) : reply);
    bool in_file = !r->synced || hf_reply_count(hf_reply_item(reply, 0)) == 1;
    if (acknowledged >= r->replicas && in_file) {
        hf_attempt_tell(r, a, &news);
        return;
    }
    snprintf(text, sizeof text, "%lld of %lld replicas acknowledged it within %lld ms%s", (long long)acknowledged,
             (long long)r->replicas, (long long)r->replica_timeout_ms,
             in_file ? "" : ", nor did the server's own file");
    if (news.cue == HF_N_GRANTED)
        give_back(r, a, now);
    hf_attempt_fail(r, a, news.asked_at, HF_NOT_REPLICATED, text);
}
