/* addon_module.c - the module: its functions, in one table. */
#include "addon.h"

static const struct {
    const char *name;
    napi_callback call;
} functions[] = {
    {"open", addon_open},
    {"closeNow", addon_close_now},
    {"close", addon_close},
    {"checkUrl", addon_check_url},
    {"setting", addon_setting},
    {"counters", addon_counters},
    {"setLogLevel", addon_set_log_level},
    {"alive", addon_alive},
    {"duration", addon_duration},
    {"acquire", addon_acquire},
    {"cancel", addon_cancel},
    {"left", addon_left},
    {"token", addon_token},
    {"free", addon_free},
    {"release", addon_release},
    {"extend", addon_extend},
    {"convert", addon_convert},
    {"list", addon_list},
};

NAPI_MODULE_INIT()
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        napi_value function = NULL;

        napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].call, NULL,
                             &function);
        addon_set(env, exports, functions[i].name, function);
    }
    addon_set(env, exports, "version", addon_text(env, hf_version()));
    addon_set(env, exports, "engines", addon_text(env, hf_engines()));
    return exports;
}
