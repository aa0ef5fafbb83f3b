/* findings.c - collects and prints what `doctor` found. */
#include "findings.h"
#include "output.h"
#include <stdarg.h>
#include <unistd.h>

static const char *const STATES[] = {
    [FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail"};
static const char *const COLOURS[] = {[FINDING_OK] = "\033[32m",
                                      [FINDING_NOTE] = "\033[36m",
                                      [FINDING_WARN] = "\033[33m",
                                      [FINDING_FAIL] = "\033[31m"};

void findings_add(struct findings *findings, enum finding_state state, const char *check,
                  const char *format, ...)
{
    va_list args;

    if (findings->count == sizeof findings->all / sizeof findings->all[0]) {
        findings->dropped++;
        return;
    }

    struct finding *finding = &findings->all[findings->count++];
    finding->state = state;
    snprintf(finding->check, sizeof finding->check, "%s", check);
    va_start(args, format);
    vsnprintf(finding->text, sizeof finding->text, format, args);
    va_end(args);
}

void findings_broken(struct findings *findings, int exit_code)
{
    if (findings->exit_code == 0)
        findings->exit_code = exit_code;
}

void findings_fail(struct findings *findings, const char *check, hf_status status)
{
    findings_add(findings, FINDING_FAIL, check, "%s", hf_error_text());
    findings_broken(findings, hf_status_exit_code(status) == EXIT_UNAVAILABLE ? EXIT_UNAVAILABLE
                                                                              : EXIT_CONFIG);
}

static void print_json(const struct findings *findings)
{
    printf("{\"exit\":%d,\"dropped\":%zu,\"checks\":[", findings->exit_code, findings->dropped);

    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->all[i];
        printf("%s\n{\"check\":\"%s\",\"state\":\"%s\",\"text\":", i ? "," : "", finding->check,
               STATES[finding->state]);
        json_print_text(stdout, finding->text);
        printf("}");
    }

    printf("]}\n");
}

int findings_print(const struct findings *findings, bool json)
{
    bool colour = text_may_colour(STDOUT_FILENO);

    if (json) {
        print_json(findings);
    } else {
        for (size_t i = 0; i < findings->count; i++) {
            const struct finding *finding = &findings->all[i];
            printf("%s%-4s%s  %-10s  %s\n", colour ? COLOURS[finding->state] : "",
                   STATES[finding->state], colour ? "\033[0m" : "", finding->check,
                   output_shown(finding->text).text);
        }
        if (findings->dropped)
            printf("and %zu more\n", findings->dropped);
    }

    int code = finish_stdout();
    return code == 0 ? findings->exit_code : code;
}
