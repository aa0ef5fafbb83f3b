/* strong.c - a lock that is only granted when a replica has it too: what happens when the replica is gone.
 *
 *     strong URL GONE BACK
 *
 * URL is a server with replicas=1 behind it; the shell commands GONE and BACK stop its replica and let it go on. */
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

static hf_status ask(hf_client *client, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request want = {
        .size = sizeof want, .name = "vault", .ttl_ms = TTL_MS, .wait_ms = wait_ms, .flags = HF_AUTO_RENEW};
    return hf_acquire(client, &want, lease);
}

/* A lease that was granted with the replica cannot be renewed without it, so it is lost, not kept on hope. */
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
    hf_lease *lease;
    hf_client *client = open_client(url);
    hf_status status = ask(client, 0, &lease);
    printf("a new one is not granted: %s\n", status == HF_OK ? "but it was" : hf_error_text());
    if (status != HF_NOT_REPLICATED)
        fail("it should have been refused as not replicated");
    hf_close(client, 1000);
}

/* The replica has to catch up first. */
static hf_lease *ask_until_granted(hf_client *client)
{
    hf_lease *lease;
    hf_status status = HF_NOT_REPLICATED;
    for (int tries = 0; tries < 50 && hf_status_retry(status); tries++) {
        status = ask(client, 1000, &lease);
        if (status != HF_OK)
            poll(NULL, 0, 100);
    }
    must(status);
    return lease;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        fail("usage: strong URL GONE BACK");
    hf_client *client = open_client(argv[1]);
    hf_lease *lease = ask_until_granted(client);
    printf("granted with token %" PRIu64 ": the replica has it, too\n", hf_lease_token(lease));
    shell(argv[2]);
    printf("the replica is gone\n");
    lose(lease);
    be_refused(argv[1]);
    shell(argv[3]);
    printf("the replica is back\n");
    lease = ask_until_granted(client);
    printf("granted with token %" PRIu64 "\n", hf_lease_token(lease));
    must(hf_release(lease));
    hf_lease_free(lease);
    hf_close(client, 1000);
    printf("proved: without its replica nothing was granted and nothing kept; with it the lock worked again\n");
    return 0;
}
