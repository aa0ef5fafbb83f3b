/* caller_label.c - prints and splits labels of the form "LABEL @ CALLER". */
#include "caller_label.h"
#include "auth_tokens.h"
#include <string.h>

#define MARK "@ "

const char *caller_name(const struct exchange *x)
{
    if (x->caller)
        return x->caller->name;
    return *x->client ? x->client : x->address;
}

void caller_label_print(const char *label, const char *caller, char text[HF_LABEL_MAX + 1])
{
    size_t len = strlen(label), caller_len = strlen(caller), blank = len > 0;
    size_t mark_len = blank + strlen(MARK) + caller_len;

    len = len < HF_LABEL_MAX ? len : HF_LABEL_MAX;
    memcpy(text, label, len);
    text[len] = 0;
    if (len + mark_len > HF_LABEL_MAX)
        return;

    strcpy(text + len, blank ? " " MARK : MARK);
    strcpy(text + len + mark_len - caller_len, caller);
}

struct caller_label caller_label_read(const char *text)
{
    struct caller_label found;
    const char *mark = NULL;

    for (const char *at = text; (at = strstr(at, MARK)); at++)
        if (at == text || at[-1] == ' ')
            mark = at;

    size_t len = mark ? (size_t)(mark - text) : strlen(text);
    len -= mark && len > 0; /* the blank before the mark */
    len = len < sizeof found.label ? len : sizeof found.label - 1;
    memcpy(found.label, text, len);
    found.label[len] = 0;
    const char *caller = mark ? mark + strlen(MARK) : "";
    size_t caller_len = strnlen(caller, sizeof found.caller - 1);
    memcpy(found.caller, caller, caller_len);
    found.caller[caller_len] = 0;
    return found;
}
