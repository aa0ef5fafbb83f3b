/* planted_bug.c - libFuzzer begins with our seeds: they are written into the folder that is its
 * last argument. */
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 0; fuzz_seeds[i]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/seed-%d", (*argv)[*argc - 1], i);
        FILE *file = fopen(path, "w");
        MUST(file && fputs(fuzz_seeds[i], file) >= 0 && fclose(file) == 0);
    }
    return 0;
}
