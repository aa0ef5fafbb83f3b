/* config.c - many read a configuration, one writes it, and nobody reads half of a change.
 *
 *     config [URL]
 *
 * The readers leave no gap: there is always one at it. The writer gets in all the same, because
 * readers that come after it wait behind it. When it has written it becomes a reader, and the
 * others read the new one beside it. */
#include <holdfast.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READERS = 8, CHANGES = 20, PATIENCE_MS = 20000 };

static const char *url;

static struct shared {
    _Atomic int host, port; /* the configuration: both are changed, and must agree */
    _Atomic int reads, torn, over;
} * shared;

static void fail(const char *why)
{
    fprintf(stderr, "config: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static hf_lease *take(hf_client *client, hf_kind kind)
{
    struct hf_request want = {
        .size = sizeof want, .name = "config", .kind = kind, .wait_ms = PATIENCE_MS};
    hf_lease *lease;
    must(hf_acquire(client, &want, &lease));
    return lease;
}

static void give_back(hf_lease *lease)
{
    must(hf_release(lease));
    hf_lease_free(lease);
}

static void read_for_ever(void)
{
    hf_client *client;
    must(hf_open(url, NULL, &client));
    while (!shared->over) {
        hf_lease *lease = take(client, HF_READ);
        int host = shared->host;
        nap_ms(3); /* slow enough that the readers overlap */
        if (shared->port != host)
            shared->torn++;
        shared->reads++;
        give_back(lease);
    }
    must(hf_close(client, 1000));
}

/* Changes both halves, and lets others read before it lets go. Returns how long it waited for its
 * turn. */
static int64_t change(hf_client *client, int number)
{
    int64_t asked = now_ms();
    hf_lease *lease = take(client, HF_WRITE);
    int64_t waited = now_ms() - asked;
    uint64_t token = hf_lease_token(lease);
    shared->host = number;
    nap_ms(2);
    shared->port = number;
    must(hf_downgrade(lease));
    if (hf_lease_token(lease) != token)
        fail("a downgrade changed the token");
    int64_t end = now_ms() + PATIENCE_MS;
    for (int before = shared->reads; shared->reads == before; nap_ms(1))
        if (now_ms() > end)
            fail("no reader came in beside the writer that had become one");
    if (shared->host != number)
        fail("somebody wrote while the writer still read");
    give_back(lease);
    return waited;
}

static void write_changes(void)
{
    int64_t longest = 0;
    hf_client *client;
    must(hf_open(url, NULL, &client));
    for (int i = 1; i <= CHANGES; i++) {
        int64_t waited = change(client, i);
        longest = waited > longest ? waited : longest;
    }
    must(hf_close(client, 1000));
    printf("%d changes beside %d readers; the longest wait of the writer was %" PRId64 " ms\n",
           CHANGES, READERS, longest);
}

int main(int argc, char **argv)
{
    pid_t reader[READERS];
    int status;
    url = argc > 1 ? argv[1] : NULL;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no memory to share");
    for (int i = 0; i < READERS; i++) {
        reader[i] = fork();
        if (reader[i] < 0)
            fail("no process");
        if (reader[i] == 0) {
            read_for_ever();
            return 0;
        }
    }
    while (shared->reads < READERS)
        nap_ms(1);
    write_changes();
    shared->over = 1;
    for (int i = 0; i < READERS; i++)
        if (waitpid(reader[i], &status, 0) != reader[i] || status != 0)
            fail("a reader failed");
    printf("%d reads, %d of them saw half of a change\n", shared->reads, shared->torn);
    if (shared->torn)
        fail("nobody may see half of a change");
    printf("proved: the writer got in %d times beside %d readers without a gap, no read was torn, "
           "and after each "
           "downgrade others read beside it\n",
           CHANGES, READERS);
    return 0;
}
