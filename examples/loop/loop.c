/* loop.c - one thread waits for ten thousand locks at once, in an epoll loop of its own.
 *
 *     loop [URL]
 *
 * A hundred doors, a hundred who want to go through each: hf_fd tells when there is something to
 * do, hf_timeout_ms when to look even so, and hf_process does it and runs the callbacks. */
#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DOORS = 100, EACH = 100, WAITS = DOORS * EACH };

struct tally {
    int through;
    uint64_t token[DOORS]; /* the last one of each door */
};

struct visit {
    struct tally *tally;
    int door;
};

static void fail(const char *why)
{
    fprintf(stderr, "loop: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

/* One goes through: whoever frees a lease gives it back, without waiting for the answer. */
static void pass(hf_lease *lease, hf_status outcome, void *arg)
{
    struct visit *visit = arg;
    must(outcome);
    if (hf_lease_token(lease) <= visit->tally->token[visit->door])
        fail("a token that is not higher than the one before");
    visit->tally->token[visit->door] = hf_lease_token(lease);
    visit->tally->through++;
    hf_lease_free(lease);
}

static void queue_all(hf_client *client, struct tally *tally, struct visit *visits)
{
    for (int i = 0; i < WAITS; i++) {
        char name[32];
        struct hf_request want = {.size = sizeof want, .name = name, .wait_ms = HF_FOREVER};
        hf_lease *lease; /* freed in pass() */
        visits[i] = (struct visit){.tally = tally, .door = i % DOORS};
        snprintf(name, sizeof name, "door/%d", visits[i].door);
        must(hf_acquire_start(client, &want, pass, &visits[i], &lease));
    }
}

/* The loop: your own descriptors stand in the same epoll. */
static void serve(hf_client *client, const struct tally *tally)
{
    struct epoll_event event = {.events = EPOLLIN};
    int loop = epoll_create1(EPOLL_CLOEXEC);
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, hf_fd(client), &event) != 0)
        fail("no epoll");
    while (tally->through < WAITS) {
        int64_t due = hf_timeout_ms(client);
        if (epoll_wait(loop, &event, 1, due > 10000 ? 10000 : (int)due) < 0)
            fail("epoll_wait");
        must(hf_process(client));
    }
    close(loop);
}

int main(int argc, char **argv)
{
    static struct tally tally;
    static struct visit visits[WAITS];
    struct hf_client_options options = {.size = sizeof options, .no_thread = true};
    struct hf_counters counters = {.size = sizeof counters};
    hf_client *client;
    must(hf_open(argc > 1 ? argv[1] : NULL, &options, &client));
    queue_all(client, &tally, visits);
    printf("%d wait at %d doors\n", WAITS, DOORS);
    serve(client, &tally);
    must(hf_client_counters(client, &counters));
    printf("%" PRIu64 " asked, %" PRIu64 " of them had to wait, %" PRIu64 " granted\n",
           counters.asked, counters.queued, counters.granted);
    if (counters.granted != WAITS || counters.queued < WAITS - DOORS)
        fail("that is not ten thousand waits");
    must(hf_close(client, 5000));
    printf("proved: one thread and one epoll loop served %d waits at %d doors, tokens rising at "
           "each\n",
           WAITS, DOORS);
    return 0;
}
