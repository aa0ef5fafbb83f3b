/* addon_loop.c - the library's descriptor in Node's event loop: JavaScript's thread reads the
 * replies that JavaScript waits for, and no other thread wakes for them.
 *
 * Node-API cannot poll a descriptor, libuv can. Its functions are found when a client is opened,
 * and it says itself how large its handle is, so nothing of a certain version is compiled in. Where
 * they are missing (Bun, Deno) the library's thread reads, and brings events by a thread-safe
 * function. */
#include "addon.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of libuv's interface, which it keeps within its major version. */
enum { UV_POLL = 8, UV_READABLE = 1 };

typedef void poll_fn(void *handle, int status, int events);
typedef void closed_fn(void *handle);

static struct {
    size_t (*handle_size)(int type);
    const char *(*type_name)(int type);
    int (*poll_init)(void *loop, void *handle, int fd);
    int (*poll_start)(void *handle, int events, poll_fn *fn);
    void (*close)(void *handle, closed_fn *fn);
    void (*ref)(void *handle);
    void (*unref)(void *handle);
    void (*set_data)(void *handle, void *data);
    void *(*get_data)(const void *handle);
} uv;

/* Freed when libuv has closed the handle. */
struct addon_loop {
    napi_env env;
    struct addon_client *client; /* NULL: stopped */
    void *handle;                /* uv_poll_t */
    napi_async_context context;
    napi_async_cleanup_hook_handle hook; /* the environment waits for the handle's end */
};

/* ---- libuv ---- */

static bool find(void *function, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &found, sizeof found);
    return found;
}

static bool find_all(void)
{
    bool found =
        find(&uv.handle_size, "uv_handle_size") && find(&uv.type_name, "uv_handle_type_name") &&
        find(&uv.poll_init, "uv_poll_init") && find(&uv.poll_start, "uv_poll_start") &&
        find(&uv.close, "uv_close") && find(&uv.ref, "uv_ref") && find(&uv.unref, "uv_unref") &&
        find(&uv.set_data, "uv_handle_set_data") && find(&uv.get_data, "uv_handle_get_data");
    return found && strcmp(uv.type_name(UV_POLL), "poll") == 0;
}

bool addon_loop_is_there(void)
{
    static atomic_int known; /* 0: not looked yet; 1: no; 2: yes */
    if (!atomic_load(&known))
        atomic_store(&known, find_all() ? 2 : 1);
    return atomic_load(&known) == 2;
}

/* ---- The end of a handle ---- */

static void on_closed(void *handle)
{
    struct addon_loop *loop = uv.get_data(handle);

    if (loop->hook)
        napi_remove_async_cleanup_hook(loop->hook);
    free(handle);
    free(loop);
}

/* Idempotent. The descriptor is not polled any more when it returns, so it may be closed. */
void addon_loop_stop(struct addon_client *client)
{
    struct addon_loop *loop = client->loop;

    if (!loop)
        return;
    client->loop = NULL;
    loop->client = NULL;
    napi_async_destroy(loop->env, loop->context);
    uv.close(loop->handle, on_closed);
}

/* Called when the environment ends before the client was closed. */
static void on_env_end(napi_async_cleanup_hook_handle hook, void *data)
{
    struct addon_loop *loop = data;

    (void)hook;
    if (loop->client)
        addon_loop_stop(loop->client);
}

/* ---- Polling ---- */

static void on_readable(void *handle, int status, int events)
{
    struct addon_loop *loop = uv.get_data(handle);

    (void)status, (void)events;
    if (loop->client)
        addon_event_process(loop->env, loop->context, loop->client);
}

static bool poll_descriptor(struct addon_loop *loop, void *uv_loop, int fd)
{
    loop->handle = calloc(1, uv.handle_size(UV_POLL));
    if (!loop->handle)
        return false;
    if (uv.poll_init(uv_loop, loop->handle, fd) != 0) {
        free(loop->handle);
        return false;
    }
    uv.set_data(loop->handle, loop);
    return true;
}

bool addon_loop_start(napi_env env, struct addon_client *client)
{
    struct addon_loop *loop = calloc(1, sizeof *loop);
    struct uv_loop_s *uv_loop = NULL;
    int fd = hf_fd(client->hf);

    if (!loop || fd < 0 || napi_get_uv_event_loop(env, &uv_loop) != napi_ok ||
        !poll_descriptor(loop, uv_loop, fd)) {
        free(loop);
        return false;
    }
    loop->env = env;
    loop->client = client;
    client->loop = loop;
    napi_async_init(env, NULL, addon_text(env, "holdfast"), &loop->context);
    napi_add_async_cleanup_hook(env, on_env_end, loop, &loop->hook);
    uv.unref(loop->handle);
    if (uv.poll_start(loop->handle, UV_READABLE, on_readable) == 0)
        return true;
    addon_loop_stop(client);
    return false;
}

void addon_loop_keep_alive(struct addon_client *client, bool keep)
{
    (keep ? uv.ref : uv.unref)(client->loop->handle);
}
