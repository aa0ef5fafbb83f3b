/* capture.c - stderr in a file without a name, and back again. */
#include "capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *file;
static int screen = -1;

void capture_stderr(void)
{
    fflush(stderr);
    file = tmpfile();
    screen = dup(STDERR_FILENO);
    if (!file || screen < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
        abort();
}

const char *captured_stderr(void)
{
    static char text[4096];

    fflush(stderr);
    if (dup2(screen, STDERR_FILENO) < 0)
        abort();
    close(screen);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}
