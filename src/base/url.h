/* url.h - splits an engine URL: SCHEME:BODY?QUERY. Each engine reads the body itself. */
#pragma once
#include "holdfast.h"

#define URL_MAX 4096

struct url {
    char scheme[24];     /* in lower case */
    char body[URL_MAX];  /* as written, still percent-encoded: "//host:6379/0", "/run/locks" */
    char query[URL_MAX]; /* text behind the first question mark; "": none */
};

/* HF_CONFIG: the error text says what is wrong, without showing a password. Blanks, '#', control
 * characters and bytes that are not UTF-8 must be percent-encoded. */
hf_status url_parse(struct url *url, const char *text);

/* Decodes %XX into `out`, which gets a final NUL; size is at least 1. HF_CONFIG: an escaped NUL, a
 * bad escape, or too little room; `out` is "" then. The error text gives the position and not the
 * content, which may be a password. '+' is not an escape. */
hf_status url_decode(const char *text, size_t len, char *out, size_t size);
