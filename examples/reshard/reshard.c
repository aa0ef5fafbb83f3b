/* reshard.c - a cluster is resharded while its locks are held, waited for and handed over.
 *
 *     reshard URL MOVE
 *
 * URL is a cluster; the shell command MOVE moves the slot of {shop} to another node, and is run
 * four times. */
#include <holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 4, MOVES = 4, TTL_MS = 3000, WAIT_MS = 20000, PACK_MS = 2 };

static hf_client *client;
static atomic_bool is_closed;
static atomic_int inside;
static uint64_t last_token; /* written under the lock only */
static atomic_uint orders;
static unsigned turns[WORKERS]; /* each written by its worker only */

static void fail(const char *why)
{
    fprintf(stderr, "reshard: %s\n", why);
    exit(1);
}

static hf_lease *take(const char *name)
{
    struct hf_request want = {.size = sizeof want,
                              .name = name,
                              .ttl_ms = TTL_MS,
                              .wait_ms = WAIT_MS,
                              .flags = HF_AUTO_RENEW};
    hf_lease *lease;
    if (hf_acquire(client, &want, &lease) != HF_OK)
        fail(hf_error_text());
    return lease;
}

static void give_back(hf_lease *lease)
{
    if (hf_release(lease) != HF_OK)
        fail(hf_error_text());
    hf_lease_free(lease);
}

static void *work(void *arg)
{
    unsigned *mine = arg;
    while (!is_closed) {
        hf_lease *lease = take("{shop}orders");
        if (inside++ != 0)
            fail("two took the same order");
        if (hf_lease_token(lease) <= last_token)
            fail("a token did not rise");
        last_token = hf_lease_token(lease);
        poll(NULL, 0, PACK_MS);
        orders++;
        (*mine)++;
        inside--;
        give_back(lease);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t worker[WORKERS];
    if (argc != 3)
        fail("usage: reshard URL MOVE");
    if (hf_open(argv[1], NULL, &client) != HF_OK)
        fail(hf_error_text());
    hf_lease *backup = take("{shop}backup");
    uint64_t token = hf_lease_token(backup);
    for (unsigned i = 0; i < WORKERS; i++)
        if (pthread_create(&worker[i], NULL, work, &turns[i]) != 0)
            fail("no thread");

    for (int i = 0; i < MOVES; i++) {
        poll(NULL, 0, 500);
        if (system(argv[2]) != 0)
            fail(argv[2]);
        printf("moved; %u orders were taken so far\n", atomic_load(&orders));
    }
    is_closed = true;
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(worker[i], NULL);

    if (!hf_lease_ok(backup) || hf_lease_token(backup) != token)
        fail("the backup lost its lock");
    give_back(backup);
    for (unsigned i = 0; i < WORKERS; i++)
        if (turns[i] * WORKERS * 2 < orders)
            fail("a worker had less than half of its share");
    hf_close(client, 1000);
    printf("%u orders, the last under token %" PRIu64 "\n", atomic_load(&orders), last_token);
    printf("proved: the slot moved %d times while four workers took turns: one at a time, tokens "
           "rising, no lease lost\n",
           MOVES);
    return 0;
}
