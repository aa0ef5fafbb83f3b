/* openapi.h - the parts of the OpenAPI document that are not made from the routes. */
#pragma once
#include <stddef.h>

extern const unsigned char OPENAPI_PARTS[]; /* openapi_parts.json, embedded at build time */
extern const size_t OPENAPI_PARTS_LEN;
