/* endpoint.c - prints the address of a server. */
#include "endpoint.h"

#include <stdio.h>
#include <string.h>

void endpoint_print(const struct endpoint *endpoint, char text[ENDPOINT_TEXT_MAX])
{
    bool is_ipv6 = strchr(endpoint->host, ':') != NULL;

    if (endpoint->path[0])
        snprintf(text, ENDPOINT_TEXT_MAX, "%s", endpoint->path);
    else
        snprintf(text, ENDPOINT_TEXT_MAX, is_ipv6 ? "[%s]:%s" : "%s:%s", endpoint->host,
                 endpoint->port);
}
