/* redlock_fixture.h - the scene of a test on a quorum: five servers of its own for each test, or as
 * many as it wants, that look as if they had run for long. The test looks into them behind the
 * clients' backs. */
#pragma once
#include "lib/actors.h"
#include "lib/proxy.h"
#include "lib/quorum_servers_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct scene {
    struct quorum quorum;
    hf_client *client[8]; /* closed with the scene */
    unsigned clients;
    struct proxy *proxy[8][QUORUM_MOST]; /* of a client, before each server */
    unsigned proxied;
};
extern struct scene scene;

/* ---- Setting ---- */

void scene_start(unsigned servers);
int scene_setup(void **state);
int scene_teardown(void **state);

#define ON_QUORUM(text, function)                                                                  \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup,                            \
        .teardown_func = scene_teardown                                                            \
    }

/* ---- Clients ---- */

hf_client *scene_open(const char *url);
hf_client *scene_client(const char *query);

/* A way of its own to each server: the proxies of the way with that number. */
void scene_proxied_url(const char *query, char *url, size_t size);

/* Until then the first wait would include the way to the servers. */
void scene_connect(hf_client *client);

/* Must answer that, with words that contain `words`; the milliseconds that it took. */
int64_t refused(hf_client *client, const struct want *want, hf_status status, const char *words);

/* A process that follows orders, with a client of its own there. */
struct actor *scene_actor(const char *url);

/* ---- Looking into the servers ---- */

/* On how many of those that are up the key of that lock is. */
unsigned scene_keys(const char *name);
bool scene_has_key(unsigned server, const char *name);

/* Waits until it is on that many; the milliseconds that it took. */
int64_t scene_await_keys(const char *name, unsigned servers);
