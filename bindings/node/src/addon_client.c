/* addon_client.c - clients: open, close, settings. */
#include "addon.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_EXIT_MS = 1000 };

/* ---- References and calls ---- */

static struct addon_client *client_new(napi_env env)
{
    struct addon_client *client = calloc(1, sizeof *client);
    pthread_condattr_t monotonic;

    if (!client)
        return NULL;
    client->env = env;
    client->references = 1;
    pthread_mutex_init(&client->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&client->close_ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return client;
}

void addon_client_ref(struct addon_client *client)
{
    client->references++;
}

void addon_client_unref(struct addon_client *client)
{
    if (--client->references)
        return;
    pthread_cond_destroy(&client->close_ended);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

/* Only the JavaScript thread begins to close, so it may read `closing` without the lock. */
bool addon_client_is_open(const struct addon_client *client)
{
    return client->hf && !client->closing;
}

/* ---- Closing ---- */

static struct timespec after_ms(int64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

void addon_client_closing(struct addon_client *client)
{
    client->closing = true; /* from here on no call begins; see addon_client_is_open */
    pthread_mutex_lock(&client->lock);
    client->close_runs = true;
    pthread_mutex_unlock(&client->lock);
}

/* From the unlock on another thread may free the client, so the job is posted before. */
void addon_client_closed(struct addon_client *client, struct addon_job *job)
{
    pthread_mutex_lock(&client->lock);
    client->close_runs = false;
    client->is_gone = job && addon_job_status(job) != HF_TIMEOUT;
    if (job)
        addon_event_post_job(client, job);
    pthread_cond_broadcast(&client->close_ended);
    pthread_mutex_unlock(&client->lock);
}

/* Waits for a close that runs. Returns false if it still runs at the end of the time. */
static bool await_close(struct addon_client *client, int64_t timeout_ms, bool *is_gone)
{
    struct timespec end = after_ms(timeout_ms);
    int error = 0;

    pthread_mutex_lock(&client->lock);
    while (client->close_runs && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&client->close_ended, &client->lock, &end);
    bool is_over = !client->close_runs;
    *is_gone = client->is_gone;
    pthread_mutex_unlock(&client->lock);
    return is_over;
}

/* Closes at the end of the process, unless a close that JavaScript started does that. HF_TIMEOUT:
 * some thread is still inside. */
static hf_status close_finally(struct addon_client *client)
{
    bool is_gone;

    client->closing = true;
    addon_event_stop_loop(client->env, client);
    if (!await_close(client, AT_EXIT_MS, &is_gone))
        return HF_TIMEOUT;
    return is_gone ? HF_OK : hf_close(client->hf, AT_EXIT_MS);
}

/* The environment ends: with the process, or with its worker thread. Bounded, so that a server that
 * hangs does not keep the process. */
static void close_at_exit(void *data)
{
    struct addon_client *client = data;

    if (close_finally(client) == HF_TIMEOUT)
        return; /* a thread is still inside: it keeps the memory */
    client->hf = NULL;
    addon_event_detach(client->env, client);
    addon_client_unref(client);
}

void addon_client_forget(napi_env env, struct addon_client *client)
{
    if (!client->hf)
        return;
    client->hf = NULL;
    addon_event_detach(env, client);
    if (napi_remove_env_cleanup_hook(env, close_at_exit, client) == napi_ok)
        addon_client_unref(client);
}

/* close_now(client): at the end of the process, when nothing asynchronous runs any more. */
napi_value addon_close_now(napi_env env, napi_callback_info info)
{
    napi_value arguments[1];

    addon_arguments(env, info, 1, arguments);
    struct addon_client *client = addon_external(env, arguments[0]);
    if (client && client->hf && close_finally(client) != HF_TIMEOUT)
        addon_client_forget(env, client);
    return NULL;
}

static void drop_client(napi_env env, void *data, void *hint)
{
    (void)env, (void)hint;
    addon_client_unref(data);
}

/* ---- Opening ---- */

/* Node brings OpenSSL 3, and whoever updates Node updates it. Bun and Deno bring none that an addon
 * can use: there the system's is taken. Without this check the first TLS connection would end the
 * process. */
static bool has_tls(void)
{
    return dlsym(RTLD_DEFAULT, "OPENSSL_init_ssl") || dlopen("libssl.so.3", RTLD_NOW | RTLD_GLOBAL);
}

static bool wants_tls(const char *url)
{
    static const char *const schemes[] = {"rediss", "valkeys", "redlocks",
                                          "etcds",  "consuls", "zookeepers"};

    for (size_t i = 0; url && i < sizeof schemes / sizeof *schemes; i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
            return true;
    return false;
}

static hf_status open_library(struct addon_client *client, const char *url,
                              struct hf_client_options options, bool polls)
{
    options.size = sizeof options;
    options.on_log = addon_on_log;
    options.log_arg = client;
    options.log_level = HF_LOG_WARN;
    options.keep_handles = true;
    options.own_callbacks = polls;
    struct hf_capabilities capabilities = {.size = sizeof capabilities};
    hf_status status = hf_open(url, &options, &client->hf);

    if (status != HF_OK)
        return status;
    (void)hf_client_capabilities(client->hf, &capabilities);
    client->answers_at_once = capabilities.can & HF_CAN_ANSWER_AT_ONCE;
    const char *source;
    (void)hf_client_setting(client->hf, "spin", &client->near.spin_us, &source);
    return HF_OK;
}

static napi_value refuse_client(napi_env env, struct addon_client *client, hf_status status)
{
    char text[ERROR_TEXT_MAX];

    snprintf(text, sizeof text, "%s", hf_error_text());
    addon_event_detach(env, client);
    addon_client_unref(client);
    return addon_throw(env, status, text);
}

/* Returns a copy of a text of any length, to be freed; NULL if the value is no text. */
static char *copy_text(napi_env env, napi_value value)
{
    size_t length = 0;

    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return NULL;
    char *text = malloc(length + 1);
    if (text)
        napi_get_value_string_utf8(env, value, text, length + 1, &length);
    return text;
}

/* Reads [maxStall, ca, cert, key, password, polls], each of which may be undefined. */
static struct hf_client_options read_options(napi_env env, napi_value array)
{
    struct hf_client_options options = {0};
    napi_value value[5];

    for (uint32_t i = 0; i < 5; i++)
        napi_get_element(env, array, i, &value[i]);
    options.max_stall_ms = addon_integer(env, value[0], 0);
    options.ca_pem = copy_text(env, value[1]);
    options.cert_pem = copy_text(env, value[2]);
    options.key_pem = copy_text(env, value[3]);
    options.password = copy_text(env, value[4]);
    return options;
}

/* Returns the option `polls`: the runtime is one whose libuv works. Bun has libuv's functions too,
 * but a call of them ends the process. */
static bool may_poll(napi_env env, napi_value array)
{
    napi_value value;
    bool polls = false;

    napi_get_element(env, array, 5, &value);
    return napi_get_value_bool(env, value, &polls) == napi_ok && polls && addon_loop_is_there();
}

static void free_options(struct hf_client_options *options)
{
    free((char *)(uintptr_t)options->ca_pem);
    free((char *)(uintptr_t)options->cert_pem);
    free((char *)(uintptr_t)options->key_pem);
    free((char *)(uintptr_t)options->password);
}

/* open(url | undefined, dispatcher, options[]) -> client */
napi_value addon_open(napi_env env, napi_callback_info info)
{
    napi_value arguments[3], result = NULL;
    char buffer[4096];

    addon_arguments(env, info, 3, arguments);
    const char *url = addon_string(env, arguments[0], buffer, sizeof buffer);
    if (wants_tls(url ? url : getenv("HOLDFAST_URL")) && !has_tls())
        return addon_throw(env, HF_UNSUPPORTED,
                           "TLS: this runtime has no OpenSSL 3, and there is no libssl.so.3");

    struct addon_client *client = client_new(env);
    if (!client)
        return addon_throw(env, HF_NO_MEMORY, "no memory for a client");
    if (!addon_event_attach(env, client, arguments[1])) {
        addon_client_unref(client);
        return addon_throw(env, HF_FULL, "too many clients are open in this process");
    }
    struct hf_client_options options = read_options(env, arguments[2]);
    bool polls = may_poll(env, arguments[2]);
    hf_status status = open_library(client, url, options, polls);
    free_options(&options);
    if (status == HF_OK && polls && !addon_loop_start(env, client)) {
        (void)hf_close(client->hf, 0);
        addon_event_detach(env, client);
        addon_client_unref(client);
        return addon_throw(env, HF_NO_MEMORY, "no memory or descriptor for a client");
    }
    if (status != HF_OK)
        return refuse_client(env, client, status);

    addon_client_ref(client);
    napi_add_env_cleanup_hook(env, close_at_exit, client);
    napi_create_external(env, client, drop_client, NULL, &result);
    return result;
}

/* check_url(url | undefined): throws what open() would throw for its words. */
napi_value addon_check_url(napi_env env, napi_callback_info info)
{
    napi_value arguments[1];
    char buffer[4096];

    addon_arguments(env, info, 1, arguments);
    hf_status status = hf_check_url(addon_string(env, arguments[0], buffer, sizeof buffer));
    return status == HF_OK ? NULL : addon_throw(env, status, hf_error_text());
}

/* ---- Settings and numbers ---- */

static struct addon_client *open_client(napi_env env, napi_value value)
{
    struct addon_client *client = addon_external(env, value);

    if (!client || addon_client_is_open(client))
        return client;
    addon_throw(env, HF_CLOSED, "the client is closed");
    return NULL;
}

/* setting(client, name) -> [value, source] */
napi_value addon_setting(napi_env env, napi_callback_info info)
{
    napi_value arguments[2], result = NULL;
    char name[64] = "";
    int64_t value = 0;
    const char *source = "";

    addon_arguments(env, info, 2, arguments);
    struct addon_client *client = open_client(env, arguments[0]);
    if (!client)
        return NULL;
    addon_string(env, arguments[1], name, sizeof name);
    hf_status status = hf_client_setting(client->hf, name, &value, &source);
    if (status != HF_OK)
        return addon_throw(env, status, hf_error_text());

    napi_create_array_with_length(env, 2, &result);
    napi_set_element(env, result, 0, addon_number(env, (double)value));
    napi_set_element(env, result, 1, addon_text(env, source));
    return result;
}

/* counters(client) -> { asked, granted, ... } */
napi_value addon_counters(napi_env env, napi_callback_info info)
{
    napi_value arguments[1], result = NULL;
    struct hf_counters counters = {.size = sizeof counters};

    addon_arguments(env, info, 1, arguments);
    struct addon_client *client = open_client(env, arguments[0]);
    if (!client)
        return NULL;
    (void)hf_client_counters(client->hf, &counters);
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"asked", counters.asked},        {"granted", counters.granted},
        {"queued", counters.queued},      {"busy", counters.busy},
        {"timedOut", counters.timed_out}, {"cancelled", counters.cancelled},
        {"failed", counters.failed},      {"extended", counters.extended},
        {"released", counters.released},  {"lost", counters.lost},
    };

    napi_create_object(env, &result);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        addon_set(env, result, all[i].name, addon_number(env, (double)all[i].value));
    return result;
}

/* setLogLevel(client, level) */
napi_value addon_set_log_level(napi_env env, napi_callback_info info)
{
    napi_value arguments[2];

    addon_arguments(env, info, 2, arguments);
    struct addon_client *client = open_client(env, arguments[0]);
    if (client)
        (void)hf_client_set_log_level(client->hf,
                                      (enum hf_log_level)addon_integer(env, arguments[1], 0));
    return NULL;
}

/* alive(client): says that the event loop does not hang. */
napi_value addon_alive(napi_env env, napi_callback_info info)
{
    napi_value arguments[1];

    addon_arguments(env, info, 1, arguments);
    struct addon_client *client = addon_external(env, arguments[0]);
    if (client && addon_client_is_open(client))
        (void)hf_client_alive(client->hf);
    return NULL;
}

/* duration(text) -> ms */
napi_value addon_duration(napi_env env, napi_callback_info info)
{
    napi_value arguments[1];
    char words[64] = "";
    int64_t ms = 0;

    addon_arguments(env, info, 1, arguments);
    addon_string(env, arguments[0], words, sizeof words);
    hf_status status = hf_parse_duration(words, &ms);
    return status == HF_OK ? addon_number(env, (double)ms)
                           : addon_throw(env, status, hf_error_text());
}
