/* leader.c - one of three processes leads; when it is killed another one follows, within the ttl.
 *
 *     leader [URL]
 *
 * The leader shows its token on a board. A follower that reads the board knows who leads, and a
 * board that admits only rising tokens cannot be overwritten by a leader that was asleep. */
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CANDIDATES = 3, TTL_MS = 1500, LOOK_MS = 10, SLACK_MS = 1500, PATIENCE_MS = 20000 };

/* Shared by all; in earnest this is a row in a database, written as `holdfast fence sql` says. */
static struct board {
    struct hf_fence fence;
    _Atomic uint64_t token;
    _Atomic int pid;
} * board;

static void must(hf_status status, const char *what)
{
    if (status == HF_OK)
        return;
    fprintf(stderr, "leader: %s: %s\n", what, hf_error_text());
    exit(hf_status_exit_code(status));
}

static void fail(const char *why)
{
    fprintf(stderr, "leader: %s\n", why);
    exit(1);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
}

/* Waits until it leads, says so, and leads for as long as it can. */
static void stand(const char *url)
{
    struct hf_request want = {.size = sizeof want,
                              .name = "leader",
                              .ttl_ms = TTL_MS,
                              .wait_ms = HF_FOREVER,
                              .flags = HF_AUTO_RENEW};
    hf_client *client;
    hf_lease *lease;
    must(hf_open(url, NULL, &client), "open");
    must(hf_acquire(client, &want, &lease), "stand");
    if (hf_fence_admit(&board->fence, hf_lease_token(lease)) == HF_OK) {
        board->pid = getpid();
        board->token = hf_lease_token(lease);
    }
    while (hf_lease_ok(lease))
        nap(); /* lead */
    hf_lease_free(lease);
    hf_close(client, 1000);
}

/* Waits for a newer leader than that of `token`; returns its token. */
static uint64_t newer_than(uint64_t token)
{
    int64_t end = now_ms() + PATIENCE_MS;
    while (board->token <= token) {
        if (now_ms() > end)
            fail("nobody leads");
        nap();
    }
    printf("process %d leads with token %" PRIu64 "\n", board->pid, board->token);
    return board->token;
}

static void kill_and_wait(pid_t pid)
{
    if (kill(pid, SIGKILL) != 0 || waitpid(pid, NULL, 0) != pid)
        fail("cannot kill who leads");
}

/* Kills who leads; another one must follow in time. */
static void replace(uint64_t *token)
{
    pid_t killed = board->pid;
    int64_t at = now_ms();
    kill_and_wait(killed);
    *token = newer_than(*token);
    int64_t later = now_ms() - at;
    printf("kill -9 of %d: the next one leads %" PRId64 " ms later, the ttl is %d ms\n", killed,
           later, TTL_MS);
    if (later > TTL_MS + SLACK_MS)
        fail("that is more than the ttl and the time to notice");
}

int main(int argc, char **argv)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        fail("no memory to share");
    for (int i = 0; i < CANDIDATES; i++) {
        pid_t pid = fork();
        if (pid < 0)
            fail("no process");
        if (pid == 0) {
            stand(argc > 1 ? argv[1] : NULL);
            return 0;
        }
    }
    uint64_t token = newer_than(0);
    for (int i = 0; i < CANDIDATES - 1; i++)
        replace(&token);
    kill_and_wait(board->pid);
    printf("proved: three leaders one after the other, tokens rising, each in its place within the "
           "ttl after kill -9\n");
    return 0;
}
