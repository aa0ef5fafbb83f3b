/* fetch.h - opens a text for reading: a file, stdin, or an http:// address. */
#pragma once
#include <stdio.h>

/* "-" is stdin, "http://host[:port]/path" is fetched with HTTP/1.0, anything else is a file.
 * Returns a stream that the caller closes, or NULL after a message. */
FILE *fetch_open(const char *source);
