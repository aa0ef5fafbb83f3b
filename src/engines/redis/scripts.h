/* scripts.h - the Lua scripts of scripts/, joined and hashed by the build (scripts.cmake). */
#pragma once
#include <stddef.h>

enum hf_script {
    HF_SCRIPT_ASK,
    HF_SCRIPT_EXTEND,
    HF_SCRIPT_RELEASE,
    HF_SCRIPT_CONVERT,
    HF_SCRIPT_BREAK,
    HF_SCRIPT_RESIZE,
    HF_SCRIPT_INSPECT,
    HF_SCRIPTS
};

struct hf_script_text {
    const char *name;
    const char *sha; /* 40 hexadecimal digits */
    const char *text;
    size_t len;
};

extern const struct hf_script_text hf_scripts[HF_SCRIPTS];
