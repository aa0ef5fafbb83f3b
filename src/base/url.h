/* url.h - takes an engine URL apart: SCHEME:BODY?QUERY. What the body means is the engine's business. */
#pragma once
#include "holdfast.h"

#define HF_URL_MAX 4096

struct hf_url {
    char scheme[24];        /* in lower case */
    char body[HF_URL_MAX];  /* as written, still percent-encoded: "//host:6379/0", "/run/locks" */
    char query[HF_URL_MAX]; /* behind the first question mark; "" = none */
};

/* HF_CONFIG says what is wrong, without showing a password. Blanks, '#', control characters and what is not UTF-8 must
 * be percent-encoded. */
hf_status hf_url_parse(struct hf_url *url, const char *text);

/* Decodes %XX into out (NUL-terminated; a decoded NUL, a bad escape or a lack of room is HF_CONFIG, and out is "");
 * size is at least 1. The text of the error gives the place and not the content, which may be a password. '+' stands
 * for itself. */
hf_status hf_url_decode(const char *text, size_t len, char *out, size_t size);
