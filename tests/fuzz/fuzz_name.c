/* fuzz_name.c - a name is accepted exactly when another decoder finds only characters that are
 * allowed. */
#include "fuzz.h"

#include "base/error.h"
#include "base/name.h"

const char *const fuzz_seeds[] = {"nightly",
                                  "a",
                                  "jobs/caf\xc3\xa9",
                                  "\xe2\x82\xac 100",
                                  "\xf0\x9f\x94\x92",
                                  "\xed\x9f\xbf\xee\x80\x80",
                                  "\xf4\x8f\xbf\xbf",
                                  "\xc2\xa0",
                                  "line\nbreak",
                                  "\xc2\x85",
                                  "\xed\xa0\x80",
                                  "\xc0\x80",
                                  NULL};
unsigned long fuzz_accepted, fuzz_refused;

/* Decodes by counting the leading ones, then asks whether the number needed that many bytes. 0: no
 * character. */
static size_t decode(const uint8_t *s, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t ones = 0;
    while (ones < 8 && s[0] & (0x80u >> ones))
        ones++;
    *code = s[0];
    if (ones == 0)
        return 1;
    if (ones == 1 || ones > 4 || ones > left)
        return 0;
    *code = s[0] & (0x7fu >> ones);
    for (size_t i = 1; i < ones; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return *code >= least[ones] ? ones : 0;
}

/* The place of the first character that is not allowed; size if all are. */
static size_t find_flaw(const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint32_t code;
        size_t step = decode(data + at, size - at, &code);
        bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        bool none = code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
        if (step == 0 || control || none)
            break;
        at += step;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "";
    size_t expected = find_flaw(data, size), place = SIZE_MAX;
    const char *flaw = name_flaw(text, size, &place);
    MUST((flaw != NULL) == (expected < size));
    MUST(!flaw || place == expected);

    hf_status status = name_check("name", text, size, 1, HF_NAME_MAX);
    bool good = expected == size && size >= 1 && size <= HF_NAME_MAX;
    MUST(status == (good ? HF_OK : HF_INVALID));
    MUST(good || strncmp(error_text(), "name: ", 6) == 0);
    good ? fuzz_accepted++ : fuzz_refused++;

    /* Whatever is put into the words behind a status, they can be shown. */
    error_set(HF_INVALID, "%.*s", size > 4096 ? 4096 : (int)size, text);
    MUST(!name_flaw(error_text(), strlen(error_text()), &place));
    MUST(strlen(error_text()) < ERROR_TEXT_MAX);
    return 0;
}
