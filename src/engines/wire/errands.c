/* errands.c - what is done for people: list, break, resize, watch. Each is an ask on the stack of a caller that parks.
 */
#include "inside.h"

#include "base/why.h"
#include "sys/clock.h"

#define LIST_PATIENCE HF_MS(5000) /* rows may be many */
#define WATCH_PERIOD HF_MS(200)   /* nothing tells us of changes: look */

struct errand {
    struct hf_ask ask;
    hf_row_fn *fn;
    hf_standing_fn *stand;
    hf_finding_fn *find;
    void *arg;
};

void hf_wire_row(void *ctx, struct hf_ask *ask, const struct hf_row *row)
{
    const struct errand *errand = (const struct errand *)(const void *)ask; /* the first of its fields */
    if (hf_wire_record_of(ctx, ask) && errand->fn)
        errand->fn(errand->arg, row);
}

void hf_wire_stand(void *ctx, struct hf_ask *ask, const struct hf_standing *standing)
{
    const struct errand *errand = (const struct errand *)(const void *)ask;
    if (hf_wire_record_of(ctx, ask) && errand->stand)
        errand->stand(errand->arg, standing);
}

void hf_wire_find(void *ctx, struct hf_ask *ask, const struct hf_finding *finding)
{
    const struct errand *errand = (const struct errand *)(const void *)ask;
    if (hf_wire_record_of(ctx, ask) && errand->find)
        errand->find(errand->arg, finding);
}

static struct hf_ask ask_about(enum hf_verb verb, const struct hf_seen *what, hf_nanos until)
{
    return (struct hf_ask){
        .verb = verb, .name = what->name, .name_len = (uint32_t)what->len, .see = what->which, .until = until};
}

static bool is_answer(const struct hf_news *news)
{
    return news->cue != HF_N_QUEUED && news->cue != HF_N_HINT;
}

/* False: none came in time. */
static bool await_answer(struct hf_wire *wire, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    if (hf_wire_submit(wire, ask, now, news) && is_answer(news))
        return true;
    for (;;) {
        hf_wire_park(wire, ask->slot, ask->seen, ask->until);
        while (hf_wire_peek(wire, ask, now, news))
            if (is_answer(news))
                return true;
        if (hf_clock_boot() >= ask->until)
            return false;
    }
}

static const char *words(const struct hf_news *news, const char *otherwise)
{
    return news->text && *news->text ? news->text : otherwise;
}

static hf_status judge(const struct hf_ask *ask, const struct hf_news *news, const char *gone)
{
    int len = (int)ask->name_len;
    switch (news->cue) {
    case HF_N_RELEASED:
        return HF_OK;
    case HF_N_GONE:
        return hf_why(HF_NOT_HELD, "%.*s: %s", len, ask->name, words(news, gone));
    case HF_N_FAILED:
        return hf_why(news->status, "%s", words(news, ""));
    default:
        return hf_why(ask->verb == HF_V_LIST || ask->verb == HF_V_EXAMINE ? HF_UNAVAILABLE : HF_IN_DOUBT, "%.*s: %s",
                      len, ask->name, words(news, "no answer came from the server"));
    }
}

static hf_status run(struct hf_wire *wire, struct hf_ask *ask, hf_nanos now, const char *gone)
{
    struct hf_news news;
    if (!await_answer(wire, ask, now, &news))
        news = (struct hf_news){.cue = HF_N_CUT};
    hf_status status = judge(ask, &news, gone);
    hf_wire_forget(wire, ask);
    return status;
}

hf_status hf_wire_list(void *self, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg)
{
    hf_nanos until = now + LIST_PATIENCE > what->until ? now + LIST_PATIENCE : what->until;
    struct errand errand = {.ask = ask_about(HF_V_LIST, what, until), .fn = fn, .arg = arg};
    return run(self, &errand.ask, now, "is not there");
}

hf_status hf_wire_list_servers(void *self, const struct hf_seen *what, hf_nanos now, hf_standing_fn *fn, void *arg)
{
    struct errand errand = {.ask = ask_about(HF_V_LIST, what, now + LIST_PATIENCE), .stand = fn, .arg = arg};
    return run(self, &errand.ask, now, "is not there");
}

hf_status hf_wire_break_hold(void *self, const struct hf_seen *what, uint64_t token, hf_nanos now)
{
    struct errand errand = {.ask = ask_about(HF_V_BREAK, what, what->until)};
    errand.ask.token = token;
    return run(self, &errand.ask, now, "nobody holds it with that token");
}

hf_status hf_wire_resize(void *self, const struct hf_seen *what, uint32_t capacity, hf_nanos now)
{
    struct errand errand = {.ask = ask_about(HF_V_RESIZE, what, what->until)};
    errand.ask.capacity = capacity;
    return run(self, &errand.ask, now, "is not in use");
}

hf_status hf_wire_examine(void *self, hf_nanos now, hf_finding_fn *fn, void *arg)
{
    struct hf_seen nothing = {.which = HF_SEE_ONE, .name = "-", .len = 1};
    struct errand errand = {.ask = ask_about(HF_V_EXAMINE, &nothing, now + LIST_PATIENCE), .find = fn, .arg = arg};
    return run(self, &errand.ask, now, "is not there");
}

void hf_wire_watch(void *self, uint32_t *seen, hf_nanos until)
{
    (void)self;
    hf_nanos period = hf_clock_boot() + WATCH_PERIOD;
    if (until > 0)
        hf_sleep_until(until < period ? until : period);
    ++*seen;
}
