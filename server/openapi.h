/* openapi.h - files from which the OpenAPI document is made, besides the routes. */
#pragma once
#include <stddef.h>

extern const unsigned char OPENAPI_PARTS[]; /* openapi_parts.json, embedded at build time */
extern const size_t OPENAPI_PARTS_LEN;
extern const unsigned char JSON_SCHEMA[]; /* docs/json-schema.json, embedded at build time */
extern const size_t JSON_SCHEMA_LEN;
