/* nested.c - functions that call each other take the same lock, at three depths.
 *
 *     nested [URL]
 *
 * The owner's name says that it is the same one who asks. Each depth has a lease of its own and
 * releases that. */
#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static hf_client *client;
static char owner[32];

static void must(hf_status status, const char *what)
{
    if (status == HF_OK)
        return;
    fprintf(stderr, "nested: %s: %s\n", what, hf_error_text());
    exit(hf_status_exit_code(status));
}

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "nested: not so: %s\n", what);
    exit(1);
}

static hf_lease *lock_as(const char *who)
{
    struct hf_request want = {.size = sizeof want, .name = "account/7", .owner = who};
    hf_lease *lease;
    must(hf_acquire(client, &want, &lease), who);
    return lease;
}

static void note_depth(void *depth, const struct hf_row *row)
{
    *(uint32_t *)depth = row->depth;
}

static uint32_t depth(void)
{
    uint32_t count = 0;
    must(hf_show(client, "account/7", note_depth, &count), "show");
    return count;
}

/* Releases and says what is left; frees the handle. */
static void unlock(hf_lease *lease, const char *function)
{
    must(hf_release(lease), function);
    printf("%s releases, depth %u\n", function, depth());
    hf_lease_free(lease);
}

static void write_journal(void)
{
    hf_lease *lease = lock_as(owner);
    printf("write_journal holds, depth %u\n", depth());
    require(depth() == 3, "the third depth is 3");
    unlock(lease, "write_journal");
}

static void withdraw(void)
{
    hf_lease *lease = lock_as(owner);
    printf("withdraw holds, depth %u\n", depth());
    write_journal();
    unlock(lease, "withdraw");
}

/* Gives back its lease once more than it took it, while somebody else holds the lock by then. */
static void transfer(void)
{
    hf_lease *lease = lock_as(owner);
    printf("transfer holds, depth %u\n", depth());
    withdraw();
    must(hf_release(lease), "transfer");
    printf("transfer releases, depth %u\n", depth());
    require(depth() == 0, "after three releases it is free");

    hf_lease *other = lock_as("somebody else");
    hf_status fourth = hf_release(lease);
    printf("the fourth release: %s\n", hf_status_text(fourth));
    require(fourth == HF_NOT_HELD, "the fourth release is an error");
    require(depth() == 1 && hf_lease_left_ms(other) > 0, "who holds it now still does");
    unlock(other, "somebody else");
    hf_lease_free(lease);
}

int main(int argc, char **argv)
{
    snprintf(owner, sizeof owner, "teller-%d", (int)getpid());
    must(hf_open(argc > 1 ? argv[1] : NULL, NULL, &client), "open");
    transfer();
    must(hf_close(client, 1000), "close");
    printf("proved: three depths, free after the third release; the fourth was refused and changed "
           "nothing\n");
    return 0;
}
