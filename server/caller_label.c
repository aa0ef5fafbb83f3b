/* caller_label.c - prints and splits labels of the form "LABEL @ CALLER". */
#include "caller_label.h"
#include "auth_tokens.h"
#include <stdio.h>
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
    const char *blank = *label ? " " : "";
    int len = snprintf(text, HF_LABEL_MAX + 1, "%s%s" MARK "%s", label, blank, caller);

    if (len > HF_LABEL_MAX)
        snprintf(text, HF_LABEL_MAX + 1, "%s", label);
}

struct caller_label caller_label_read(const char *text)
{
    struct caller_label found = {.label = ""};
    const char *mark = NULL;

    for (const char *at = text; (at = strstr(at, MARK)); at++)
        if (at == text || at[-1] == ' ')
            mark = at;

    size_t len = mark ? (size_t)(mark - text) : strlen(text);
    len -= mark && len > 0; /* the blank before the mark */
    snprintf(found.label, sizeof found.label, "%.*s", (int)len, text);
    snprintf(found.caller, sizeof found.caller, "%s", mark ? mark + strlen(MARK) : "");
    return found;
}
