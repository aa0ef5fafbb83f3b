/* fuzz_settings.c - whatever a query says, every value in force is one that the table allows. */
#include "fuzz.h"

#include "base/duration.h"
#include "base/error.h"
#include "base/name.h"
#include "base/settings.h"
#include "engines/engine.h"
#include "lib/setting_ids.h"

const char *const fuzz_seeds[] = {
    "ttl=10s&wait=forever&wake=poll",
    "mode=0660&spin=20us",
    "prefix=a%3Ab&name=me&ca=/etc/ca.pem",
    "retry_min=10ms&retry_max=2s&spin=5us",
    "renew_at=500&grace=1s&max_hold=1h&drift=100",
    "history=10&history_age=1h&replicas=2&replica_timeout=100ms",
    "max_ttl=30s&op_timeout=50ms&connect_timeout=1s",
    "password_file=/run/p&cert=c&key=k",
    "",
    NULL,
};
unsigned long fuzz_accepted, fuzz_refused;

static void check_value(const struct hf_setting *row, const struct settings *s, size_t id)
{
    size_t place;
    bool given = strcmp(s->source[id], "url") == 0;
    MUST(given || strcmp(s->source[id], "default") == 0);
    if (row->unit == HF_UNIT_TEXT) {
        MUST(memchr(s->text[id], 0, SETTING_TEXT_MAX));
        MUST((size_t)s->value[id] == strlen(s->text[id]));
        MUST(!name_flaw(s->text[id], strlen(s->text[id]), &place));
    } else {
        MUST(given || s->value[id] == row->standard);
        MUST(s->text[id][0] == '\0');
    }
    MUST(!given || (s->value[id] >= row->min && s->value[id] <= row->max));
}

static void check_values(const struct settings *s)
{
    size_t count;
    const struct hf_setting *row = hf_settings(&count);
    for (size_t i = 0; i < count; i++)
        check_value(&row[i], s, engine_settings()->from[i]->index);
    MUST((s->value[SETTING_MODE] & ~0666) == 0 && (s->value[SETTING_MODE] & 0600) == 0600);
    const char *wake = s->text[SETTING_WAKE];
    MUST(strcmp(wake, "inbox") == 0 || strcmp(wake, "pubsub") == 0 || strcmp(wake, "poll") == 0);
}

/* A query that sets anything cannot be written down twice. */
static void check_twice(const char *query)
{
    struct settings s;
    size_t size = 2 * strlen(query) + 2;
    char *twice = malloc(size);
    MUST(twice);
    snprintf(twice, size, "%s&%s", query, query);
    settings_defaults(&s, engine_settings());
    MUST(settings_from_query(&s, twice) == HF_CONFIG);
    free(twice);
}

/* The values that were read, written as a query, are read as the same. */
static void check_again(const struct settings *s)
{
    size_t count, used = 0;
    const struct hf_setting *row = hf_settings(&count);
    char query[4096] = "", value[DURATION_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t id = engine_settings()->from[i]->index;
        if (row[i].unit == HF_UNIT_TEXT || strcmp(s->source[id], "url") != 0)
            continue;
        if (row[i].unit == HF_UNIT_MS)
            duration_print(s->value[id], value);
        else if (row[i].unit == HF_UNIT_US)
            duration_print_us(s->value[id], value);
        else
            snprintf(value, sizeof value, row[i].unit == HF_UNIT_OCTAL ? "%llo" : "%llu",
                     (unsigned long long)s->value[id]);
        used += (size_t)snprintf(query + used, sizeof query - used, "%s%s=%s", used ? "&" : "",
                                 row[i].name, value);
        MUST(used < sizeof query);
    }
    struct settings again;
    settings_defaults(&again, engine_settings());
    MUST(settings_from_query(&again, query) == HF_OK);
    for (size_t i = 0; i < count; i++) {
        size_t id = engine_settings()->from[i]->index;
        MUST(row[i].unit == HF_UNIT_TEXT || again.value[id] == s->value[id]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings s;
    size_t place;
    char *query = fuzz_string(data, size);
    settings_defaults(&s, engine_settings());
    hf_status status = settings_from_query(&s, query);
    /* A refused query may have set what stands in front of its error, and nothing that the table
     * forbids. */
    check_values(&s);
    if (status == HF_OK) {
        fuzz_accepted++;
        MUST(s.value[SETTING_RETRY_MIN] <= s.value[SETTING_RETRY_MAX]);
        check_again(&s);
        if (query[0])
            check_twice(query);
    } else {
        fuzz_refused++;
        MUST(status == HF_CONFIG);
        MUST(strstr(error_text(), " from the URL: ") || strstr(error_text(), " is above "));
        MUST(!name_flaw(error_text(), strlen(error_text()), &place));
    }
    free(query);
    return 0;
}
