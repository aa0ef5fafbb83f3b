/* strong.c - a lock that is only granted when a replica has it too: what happens when the replica
 * is gone.
 *
 *     strong URL GONE BACK
 *
 * URL is a server with replicas=1 behind it; the shell commands GONE and BACK stop its replica and
 * let it go on. */
#include <holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { TTL_MS = 2000 };

static void fail(const char *why)
{
    fprintf(stderr, "strong: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

static void shell(const char *command)
{
    if (system(command) != 0)
        fail(command);
}

/* Asks until the answer is the one that must come. Others may come before it: the replica has to
 * catch up, a lease that was lost may still be on its way out, a busy machine may answer late. */
static hf_lease *ask_until(hf_status wanted, hf_client *client)
{
    struct hf_request want = {
        .size = sizeof want, .name = "vault", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    hf_lease *lease = NULL;
    hf_status status = hf_acquire(client, &want, &lease);
    for (int tries = 0; tries < 200 && status != wanted && hf_status_retry(status); tries++) {
        poll(NULL, 0, 100);
        status = hf_acquire(client, &want, &lease);
    }
    if (status != wanted)
        fail(status == HF_OK ? "it was granted without its replica" : hf_error_text());
    return lease;
}

/* A lease that was granted with the replica cannot be renewed without it, so it is lost, not kept
 * on hope. */
static void lose(hf_lease *lease)
{
    struct pollfd lost = {.fd = hf_lease_fd(lease), .events = POLLIN};
    if (lost.fd < 0 || poll(&lost, 1, 2 * TTL_MS) != 1)
        fail("the lease was kept without its replica");
    printf("the lease that was held is lost when its ttl is over\n");
    hf_lease_free(lease);
}

static hf_client *open_client(const char *url)
{
    hf_client *client;
    must(hf_open(url, NULL, &client));
    return client;
}

/* Somebody else asks meanwhile. */
static void be_refused(const char *url)
{
    hf_client *client = open_client(url);
    ask_until(HF_NOT_REPLICATED, client);
    printf("a new one is not granted: %s\n", hf_error_text());
    hf_close(client, 1000);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        fail("usage: strong URL GONE BACK");
    hf_client *client = open_client(argv[1]);
    hf_lease *lease = ask_until(HF_OK, client);
    printf("granted with token %" PRIu64 ": the replica has it, too\n", hf_lease_token(lease));
    shell(argv[2]);
    printf("the replica is gone\n");
    lose(lease);
    be_refused(argv[1]);
    shell(argv[3]);
    printf("the replica is back\n");
    lease = ask_until(HF_OK, client);
    printf("granted with token %" PRIu64 "\n", hf_lease_token(lease));
    must(hf_release(lease));
    hf_lease_free(lease);
    hf_close(client, 1000);
    printf("proved: without its replica nothing was granted and nothing kept; with it the lock "
           "worked again\n");
    return 0;
}
