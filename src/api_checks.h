/* api_checks.h - the checks of arguments that the public functions share. What is called at every
 * acquire is inline. */
#pragma once
#include "holdfast.h"

#include "base/error.h"
#include "base/name.h"
#include "client/client.h"

#include <string.h>

#define WAIT_MAX_MS ((int64_t)1 << 40) /* 34 years: a deadline cannot overflow */

static inline hf_status missing(const char *what)
{
    return error_set(HF_INVALID, "%s: must not be NULL", what);
}

/* Returns the name of the first of three arguments that is NULL. */
static inline const char *first_missing(const void *one, const char *one_name, const void *two,
                                        const char *two_name, const char *three_name)
{
    if (!one)
        return one_name;
    return two ? three_name : two_name;
}

hf_status api_copy_other_size(const char *what, void *to, size_t size, const void *from,
                              size_t given);

/* Copies a struct that begins with its size. Fields that the caller's struct does not have are
 * zero. */
static inline hf_status copy_sized(const char *what, void *to, size_t size, const void *from)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given != size)
        return api_copy_other_size(what, to, size, from, given);
    memcpy(to, from, size);
    return HF_OK;
}

hf_status api_refuse_range(const char *field, int64_t value, int64_t min, int64_t max);

static inline hf_status check_range(const char *field, int64_t value, int64_t min, int64_t max)
{
    return value >= min && value <= max ? HF_OK : api_refuse_range(field, value, min, max);
}

static inline hf_status check_name(const char *field, const char *name, size_t *len)
{
    if (!name)
        return missing(field);

    if (!*len)
        *len = strlen(name);
    if (*len <= HF_NAME_MAX && name_plain(name, *len))
        return HF_OK;
    return name_check(field, name, *len, 1, HF_NAME_MAX);
}

/* Checks a text that may be missing. */
static inline hf_status check_text(const char *field, const char *text, size_t max)
{
    return text ? name_check(field, text, strlen(text), 0, max) : HF_OK;
}

/* Makes a checked copy of the caller's request, with every default filled in. */
hf_status api_check_request(const struct hf_client *client, const struct hf_request *given,
                            struct hf_request *r);
