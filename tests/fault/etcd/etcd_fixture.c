/* etcd_fixture.c - what the fault tests of etcd share. */
#include "etcd_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hf_client *etcd_client(const char *url)
{
    hf_client *client;
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s: %s", url, hf_error_text());
    return client;
}

void etcd_client_close(hf_client *client)
{
    if (hf_close(client, 5000) != HF_OK)
        fail_msg("closing: %s", hf_error_text());
}

int64_t ms_since(int64_t from_ns)
{
    return (now_ns() - from_ns) / 1000000;
}

/* ---- A thread that waits ---- */

static void *wait_for_lock(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request =
        request_of(&(struct want){.name = w->name, .ttl_ms = w->ttl_ms, .wait_ms = w->wait_ms});
    w->status = hf_acquire(w->client, &request, &w->lease);
    w->at_ns = now_ns();
    if (w->status != HF_OK)
        snprintf(w->text, sizeof w->text, "%s", hf_error_text());
    atomic_store(&w->is_over, true);
    return NULL;
}

void waiter_start(struct waiter *waiter)
{
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_lock, waiter), 0);
}

void waiter_join(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
}

void waiter_must_hold(struct waiter *waiter)
{
    waiter_join(waiter);
    if (waiter->status != HF_OK)
        fail_msg("%s: %s", waiter->name, waiter->text);
    must_release(waiter->lease);
}

/* ---- Keys ---- */

/* Reads what `etcdctl get -w fields` prints: a line for each field of each key. */
struct etcd_keys etcd_keys(const struct etcd_server *server, const char *prefix)
{
    struct etcd_keys keys = {0};
    char words[256], *rest = NULL;
    snprintf(words, sizeof words, "get --prefix --sort-by=CREATE -w fields %s", prefix);
    char *out = strdup(etcdctl(server, words));
    assert_non_null(out);
    for (char *line = strtok_r(out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *colon = strstr(line, " : ");
        if (!colon || keys.count == KEYS_MAX)
            continue;
        if (strncmp(line, "\"Key\"", 5) == 0)
            sscanf(colon + 3, "\"%159[^\"]", keys.key[keys.count]);
        else if (strncmp(line, "\"CreateRevision\"", 16) == 0)
            keys.created[keys.count] = strtoull(colon + 3, NULL, 10);
        else if (strncmp(line, "\"Lease\"", 7) == 0)
            keys.lease[keys.count++] = strtoll(colon + 3, NULL, 10);
    }
    free(out);
    return keys;
}

void etcd_await_keys(const struct etcd_server *server, const char *prefix, int count)
{
    int64_t begin = now_ns();
    while (etcd_keys(server, prefix).count != count) {
        if (ms_since(begin) > ACTOR_PATIENCE_MS)
            fail_msg("%d keys below %s instead of %d", etcd_keys(server, prefix).count, prefix,
                     count);
        nap_ms(10);
    }
}

void etcd_revoke(const struct etcd_server *server, int64_t lease)
{
    char words[64];
    snprintf(words, sizeof words, "lease revoke %016" PRIx64, (uint64_t)lease);
    etcdctl(server, words);
}
