/* tickets.c - twenty buyers queue for tickets; three die in the queue; the others are served in
 * the order they came.
 *
 *     tickets [URL]
 *
 * The engine keeps the past holds of the name: the audit trail. `holdfast history box-office`
 * shows the same. */
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUYERS = 20, PATIENCE_MS = 30000, LOOK_MS = 2, TTL_MS = 2000 };
#define NAME "box-office"

static const int dying[] = {4, 10, 16};
enum { DYING = sizeof dying / sizeof *dying };

static const char *url;

static struct sold {
    _Atomic int count;
    int buyer[BUYERS];
} * sold;

static void fail(const char *why)
{
    fprintf(stderr, "tickets: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static hf_lease *take(hf_client *client, const char *label)
{
    struct hf_request want = {.size = sizeof want,
                              .name = NAME,
                              .label = label,
                              .ttl_ms = TTL_MS,
                              .wait_ms = PATIENCE_MS,
                              .flags = HF_AUTO_RENEW};
    hf_lease *lease;
    must(hf_acquire(client, &want, &lease));
    return lease;
}

static void give_back(hf_client *client, hf_lease *lease)
{
    must(hf_release(lease));
    hf_lease_free(lease);
    must(hf_close(client, 1000));
}

static void buy(int number)
{
    char label[32];
    hf_client *client;
    snprintf(label, sizeof label, "buyer %d", number);
    must(hf_open(url, NULL, &client));
    hf_lease *lease = take(client, label);
    sold->buyer[sold->count] = number;
    sold->count++;
    give_back(client, lease);
}

static void count_waiter(void *count, const struct hf_row *row)
{
    *(int *)count += row->role == HF_WAITER;
}

/* The next buyer comes when this one stands in line: so their order is known. */
static void await_waiters(hf_client *client, int wanted)
{
    int count = 0;
    for (int tries = 0; count != wanted; tries++) {
        if (tries == PATIENCE_MS / LOOK_MS)
            fail("a buyer does not come");
        nap_ms(LOOK_MS);
        count = 0;
        must(hf_show(client, NAME, count_waiter, &count));
    }
}

static void queue_up(hf_client *client, pid_t *buyer)
{
    for (int i = 0; i < BUYERS; i++) {
        buyer[i] = fork();
        if (buyer[i] < 0)
            fail("no process");
        if (buyer[i] == 0) {
            buy(i + 1);
            exit(0);
        }
        await_waiters(client, i + 1);
    }
}

static void kill_three(pid_t *buyer)
{
    for (int i = 0; i < DYING; i++) {
        if (kill(buyer[dying[i]], SIGKILL) != 0 ||
            waitpid(buyer[dying[i]], NULL, 0) != buyer[dying[i]])
            fail("a buyer cannot be killed");
        printf("buyer %d dies in the queue\n", dying[i] + 1);
        buyer[dying[i]] = 0;
    }
}

static void await_the_living(const pid_t *buyer)
{
    int status;
    for (int i = 0; i < BUYERS; i++)
        if (buyer[i] && (waitpid(buyer[i], &status, 0) != buyer[i] || status != 0))
            fail("a buyer failed");
}

static void check_order(const pid_t *buyer)
{
    int place = 0;
    printf("served:");
    for (int i = 0; i < sold->count; i++)
        printf(" %d", sold->buyer[i]);
    printf("\n");
    for (int i = 0; i < BUYERS; i++)
        if (buyer[i] && (place >= sold->count || sold->buyer[place++] != i + 1))
            fail("that is not the order in which they came");
    if (place != BUYERS - DYING || sold->count != place)
        fail("that is not everybody who lived");
}

struct trail {
    int rows;        /* of buyers that were served */
    uint64_t newest; /* token of the row before: older ones have smaller ones */
};

static void print_past(void *arg, const struct hf_row *row)
{
    struct trail *trail = arg;
    printf("  token %" PRIu64 "  %-10s %s, held %" PRId64 " ms\n", row->token, row->label,
           row->ended == HF_OK ? "released" : "lost", row->since_ms);
    if (trail->newest && row->token >= trail->newest)
        fail("the trail is not in the order of its tokens");
    trail->newest = row->token;
    trail->rows += row->ended == HF_OK && strncmp(row->label, "buyer ", 6) == 0;
}

static void check_trail(void)
{
    struct trail trail = {0};
    hf_client *client;
    must(hf_open(url, NULL, &client));
    printf("the audit trail, newest first:\n");
    must(hf_history(client, NAME, print_past, &trail));
    must(hf_close(client, 1000));
    if (trail.rows != BUYERS - DYING)
        fail("the trail does not have everybody who was served");
}

int main(int argc, char **argv)
{
    pid_t buyer[BUYERS];
    hf_client *office;
    url = argc > 1 ? argv[1] : NULL;
    setenv("HOLDFAST_HISTORY", "100",
           0); /* as history=100 in the URL: how many past holds are kept */
    sold = mmap(NULL, sizeof *sold, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sold == MAP_FAILED)
        fail("no memory to share");
    must(hf_open(url, NULL, &office));
    hf_lease *closed = take(office, "not yet open");
    queue_up(office, buyer);
    printf("%d buyers wait\n", BUYERS);
    kill_three(buyer);
    fflush(stdout);
    give_back(office, closed);
    await_the_living(buyer);
    check_order(buyer);
    check_trail();
    printf("proved: %d buyers, %d died in the queue, %d were served in the order in which they "
           "came, and all are in the "
           "audit trail\n",
           BUYERS, DYING, sold->count);
    return 0;
}
