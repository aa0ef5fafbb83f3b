/* fuzz_settings.c - whatever a query says, every value in force is one that the table allows. */
#include "fuzz.h"

#include "base/duration.h"
#include "base/name.h"
#include "base/settings.h"
#include "base/why.h"

const char *const fuzz_seeds[] = {
    "ttl=10s&wait=forever&wake=poll",
    "mode=0660&spin=20us",
    "prefix=a%3Ab&name=me&ca=/etc/ca.pem",
    "retry_min=10ms&retry_max=2s&retry_limit=5",
    "renew_at=500&grace=1s&max_hold=1h&drift=100",
    "history=10&history_age=1h&replicas=2&replica_timeout=100ms",
    "max_ttl=30s&op_timeout=50ms&connect_timeout=1s",
    "password_file=/run/p&cert=c&key=k",
    "",
    NULL,
};
unsigned long fuzz_accepted, fuzz_refused;

static void check_value(const struct hf_setting *row, const struct hf_settings *s, size_t id)
{
    size_t place;
    bool given = strcmp(s->source[id], "url") == 0;
    MUST(given || strcmp(s->source[id], "default") == 0);
    if (row->unit == HF_UNIT_TEXT) {
        MUST(memchr(s->text[id], 0, HF_SETTING_TEXT_MAX));
        MUST((size_t)s->value[id] == strlen(s->text[id]));
        MUST(!hf_name_flaw(s->text[id], strlen(s->text[id]), &place));
    } else {
        MUST(given || s->value[id] == row->standard);
        MUST(s->text[id][0] == '\0');
    }
    MUST(!given || (s->value[id] >= row->min && s->value[id] <= row->max));
}

static void check_values(const struct hf_settings *s)
{
    size_t count;
    const struct hf_setting *row = hf_settings_table(&count);
    for (size_t id = 0; id < count; id++)
        check_value(&row[id], s, id);
    MUST((s->value[HF_SET_MODE] & ~0666) == 0 && (s->value[HF_SET_MODE] & 0600) == 0600);
    const char *wake = s->text[HF_SET_WAKE];
    MUST(strcmp(wake, "inbox") == 0 || strcmp(wake, "pubsub") == 0 || strcmp(wake, "poll") == 0);
}

/* A query that sets anything cannot be written down twice. */
static void check_twice(const char *query)
{
    struct hf_settings s;
    size_t size = 2 * strlen(query) + 2;
    char *twice = malloc(size);
    MUST(twice);
    snprintf(twice, size, "%s&%s", query, query);
    hf_settings_defaults(&s);
    MUST(hf_settings_from_query(&s, twice) == HF_CONFIG);
    free(twice);
}

/* The values that were read, written as a query, are read as the same. */
static void check_again(const struct hf_settings *s)
{
    size_t count, used = 0;
    const struct hf_setting *row = hf_settings_table(&count);
    char query[4096] = "", value[HF_DURATION_MAX];
    for (size_t id = 0; id < count; id++) {
        if (row[id].unit == HF_UNIT_TEXT || strcmp(s->source[id], "url") != 0)
            continue;
        if (row[id].unit == HF_UNIT_MS)
            hf_duration_print(s->value[id], value);
        else if (row[id].unit == HF_UNIT_US)
            hf_duration_print_us(s->value[id], value);
        else
            snprintf(value, sizeof value, row[id].unit == HF_UNIT_OCTAL ? "%llo" : "%llu",
                     (unsigned long long)s->value[id]);
        used += (size_t)snprintf(query + used, sizeof query - used, "%s%s=%s", used ? "&" : "", row[id].name, value);
        MUST(used < sizeof query);
    }
    struct hf_settings again;
    hf_settings_defaults(&again);
    MUST(hf_settings_from_query(&again, query) == HF_OK);
    for (size_t id = 0; id < count; id++)
        MUST(row[id].unit == HF_UNIT_TEXT || again.value[id] == s->value[id]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_settings s;
    size_t place;
    char *query = fuzz_string(data, size);
    hf_settings_defaults(&s);
    hf_status status = hf_settings_from_query(&s, query);
    /* A refused query may have set what stands in front of its error, and nothing that the table forbids. */
    check_values(&s);
    if (status == HF_OK) {
        fuzz_accepted++;
        MUST(s.value[HF_SET_RETRY_MIN] <= s.value[HF_SET_RETRY_MAX]);
        check_again(&s);
        if (query[0])
            check_twice(query);
    } else {
        fuzz_refused++;
        MUST(status == HF_CONFIG);
        MUST(strstr(hf_why_text(), " from the URL: ") || strstr(hf_why_text(), " is above "));
        MUST(!hf_name_flaw(hf_why_text(), strlen(hf_why_text()), &place));
    }
    free(query);
    return 0;
}
