/* redlock_fixture.c - starts the servers of a quorum for each test, and reads what is in them. */
#include "redlock_fixture.h"

struct scene scene;

void scene_start(unsigned servers)
{
    server_needed(SERVER_REDIS);
    quorum_start(&scene.quorum, servers, SERVER_REDIS);
}

int scene_setup(void **state)
{
    memset(&scene, 0, sizeof scene);
    return stage_setup(state);
}

int scene_teardown(void **state)
{
    int closed = 0;
    for (unsigned i = 0; i < scene.clients; i++)
        if (hf_close(scene.client[i], 5000) != HF_OK) {
            print_error("closing a client of the test: %s\n", hf_error_text());
            closed = -1;
        }
    for (unsigned i = 0; i < scene.proxied; i++)
        for (unsigned j = 0; j < scene.quorum.count; j++)
            proxy_end(scene.proxy[i][j]);
    int staged = stage_teardown(state);
    servers_end();
    return staged == 0 ? closed : -1;
}

hf_client *scene_open(const char *url)
{
    hf_client **client = &scene.client[scene.clients];
    assert_true(scene.clients < sizeof scene.client / sizeof *scene.client);
    if (hf_open(url, NULL, client) != HF_OK)
        fail_msg("%s", hf_error_text());
    scene.clients++;
    return *client;
}

hf_client *scene_client(const char *query)
{
    char url[512];
    quorum_url(&scene.quorum, query, url, sizeof url);
    return scene_open(url);
}

void scene_proxied_url(const char *query, char *url, size_t size)
{
    uint16_t port[QUORUM_MOST];
    unsigned way = scene.proxied++;
    assert_true(way < 8);
    for (unsigned i = 0; i < scene.quorum.count; i++) {
        scene.proxy[way][i] = proxy_start(server_port(scene.quorum.server[i]));
        port[i] = proxy_port(scene.proxy[way][i]);
    }
    quorum_url_of_ports(port, scene.quorum.count, query, url, size);
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

void scene_connect(hf_client *client)
{
    if (hf_show(client, "nobody", ignore_row, NULL) != HF_OK)
        fail_msg("%s", hf_error_text());
}

int64_t refused(hf_client *client, const struct want *want, hf_status status, const char *words)
{
    struct hf_request request = request_of(want);
    hf_lease *lease;
    int64_t begin = now_ns();
    hf_status answer = hf_acquire(client, &request, &lease);
    int64_t took = (now_ns() - begin) / 1000000;
    if (answer != status || !strstr(hf_error_text(), words))
        fail_msg("%s instead of %s with \"%s\": %s", hf_status_name(answer), hf_status_name(status),
                 words, answer == HF_OK ? "granted" : hf_error_text());
    return took;
}

static void scene_follow_orders(struct actor *me, void *url)
{
    hf_client *client;
    part_must(hf_open(url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

struct actor *scene_actor(const char *url)
{
    struct actor *a = actor_start_part(scene_follow_orders, (void *)(uintptr_t)url);
    actor_answer(a, ORDER_GO, 0);
    return a;
}

unsigned scene_keys(const char *name)
{
    unsigned there = 0;
    for (unsigned i = 0; i < scene.quorum.count; i++)
        if (server_pid(scene.quorum.server[i]))
            there += server_count(scene.quorum.server[i], "EXISTS lock:%s", name) == 1;
    return there;
}

bool scene_has_key(unsigned server, const char *name)
{
    return server_count(scene.quorum.server[server], "EXISTS lock:%s", name) == 1;
}

int64_t scene_await_keys(const char *name, unsigned servers)
{
    int64_t begin = now_ns(), end = begin + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    for (unsigned there; (there = scene_keys(name)) != servers; nap_us(1000))
        if (now_ns() > end)
            fail_msg("%s is on %u servers, not on %u", name, there, servers);
    return (now_ns() - begin) / 1000000;
}
