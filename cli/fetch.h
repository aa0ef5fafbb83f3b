/* fetch.h - a text from where the user says it is: a file, stdin, or an http:// address. */
#pragma once
#include <stdio.h>

/* "-" is stdin, "http://host[:port]/path" is asked with HTTP/1.0, anything else is a file. NULL after a message. The
 * caller closes it. */
FILE *fetch_open(const char *source);
