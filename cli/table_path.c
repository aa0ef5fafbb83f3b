/* table_path.c - reads the path out of a local: URL. */
#include "table_path.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int digit(char c)
{
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= '0' && c <= '9' ? c - '0' : -1;
}

static bool is_path_end(char c)
{
    return c == 0 || c == '?';
}

bool table_path(const char *url, char *path, size_t size)
{
    size_t len = 0;

    path[0] = 0;
    if (!url)
        url = getenv("HOLDFAST_URL");
    if (!url)
        url = "local:";
    if (strncmp(url, "local:", 6) != 0)
        return false;

    url += 6;
    if (is_path_end(*url))
        return snprintf(path, size, "/dev/shm/holdfast-%u/table", (unsigned)geteuid()) < (int)size;
    while (len + 1 < size && !is_path_end(*url)) {
        bool escaped = url[0] == '%' && digit(url[1]) >= 0 && digit(url[2]) >= 0;
        path[len++] = escaped ? (char)(digit(url[1]) * 16 + digit(url[2])) : *url;
        url += escaped ? 3 : 1;
    }

    path[len] = 0;
    return is_path_end(*url);
}
