/* replay.c - drives a fuzzer without libFuzzer: its seeds, then COUNT changed seeds and COUNT
 * random inputs, always the same ones. Prints TAP. */
#include <signal.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_MAX 1024

static uint8_t input[INPUT_MAX];
static size_t input_len;
static int test_number = 1;
static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % below;
}

/* The input that broke a property, so that it can be made a test. We are on our way out: dprintf is
 * good enough. */
static void show_input(int signal_number)
{
    dprintf(STDOUT_FILENO, "not ok %d - signal %d\n# input:", test_number, signal_number);
    for (size_t i = 0; i < input_len; i++)
        dprintf(STDOUT_FILENO, " %02x", input[i]);
    dprintf(STDOUT_FILENO, "\n");
    _exit(1);
}

static void run_input(void)
{
    /* A copy of exactly that size: a sanitizer sees a read past its end. */
    uint8_t *copy = malloc(input_len ? input_len : 1);
    if (!copy)
        abort();
    memcpy(copy, input, input_len);
    if (LLVMFuzzerTestOneInput(copy, input_len) != 0)
        abort();
    free(copy);
}

static void load_seed(const char *seed)
{
    input_len = strlen(seed) < INPUT_MAX ? strlen(seed) : INPUT_MAX;
    memcpy(input, seed, input_len);
}

/* Bytes that mean something to our parsers come more often than others. */
static uint8_t draw_byte(void)
{
    static const char telling[] =
        "0123456789.%&=?:/@#msuh -+\n\0\x7f\x80\x85\xbf\xc2\xe0\xed\xf0\xf4\xff";
    return draw(3) ? (uint8_t)telling[draw(sizeof telling - 1)] : (uint8_t)draw(256);
}

static void insert_bytes(uint32_t at, const uint8_t *bytes, size_t len)
{
    if (input_len + len > INPUT_MAX)
        return;
    memmove(input + at + len, input + at, input_len - at);
    memcpy(input + at, bytes, len);
    input_len += len;
}

static void change_input(uint32_t seeds)
{
    uint32_t at = draw((uint32_t)input_len + 1), span = draw((uint32_t)input_len - at + 1);
    uint8_t byte = draw_byte(), piece[INPUT_MAX];
    const char *other = fuzz_seeds[draw(seeds)];
    switch (draw(5)) {
    case 0:
        if (at < input_len)
            input[at] = byte;
        break;
    case 1:
        insert_bytes(at, &byte, 1);
        break;
    case 2:
        memmove(input + at, input + at + span, input_len - at - span);
        input_len -= span;
        break;
    case 3:
        memcpy(piece, input + at, span);
        insert_bytes(draw((uint32_t)input_len + 1), piece, span);
        break;
    default:
        insert_bytes(at, (const uint8_t *)other, strlen(other));
    }
}

static void report(const char *sentence)
{
    printf("ok %d - %s\n", test_number++, sentence);
    fflush(stdout);
}

static void replay(unsigned long count)
{
    uint32_t seeds = 0;
    for (; fuzz_seeds[seeds]; seeds++) {
        load_seed(fuzz_seeds[seeds]);
        run_input();
    }
    report("every seed keeps the properties");
    for (unsigned long i = 0; i < count; i++) {
        load_seed(fuzz_seeds[draw(seeds)]);
        for (uint32_t changes = 1 + draw(4); changes > 0; changes--)
            change_input(seeds);
        run_input();
    }
    report("every changed seed keeps the properties");
    for (unsigned long i = 0; i < count; i++) {
        input_len = draw(draw(16) ? 24 : INPUT_MAX + 1);
        for (size_t at = 0; at < input_len; at++)
            input[at] = draw_byte();
        run_input();
    }
    report("every random input keeps the properties");
}

int main(int argc, char **argv)
{
    char *end = NULL;
    unsigned long count = argc == 2 ? strtoul(argv[1], &end, 10) : 0;
    if (count == 0 || *end) {
        fprintf(stderr, "usage: %s COUNT\n", argv[0]);
        return 64;
    }
    signal(SIGABRT, show_input);
    signal(SIGSEGV, show_input);
    printf("1..4\n");
    fflush(stdout);
    replay(count);
    bool both = fuzz_accepted > count / 1000 && fuzz_refused > count / 1000;
    printf("%sok %d - many inputs were accepted and many refused\n# %lu accepted, %lu refused\n",
           both ? "" : "not ", test_number, fuzz_accepted, fuzz_refused);
    return both ? 0 : 1;
}
