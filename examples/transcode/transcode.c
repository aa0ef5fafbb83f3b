/* transcode.c - a job of unknown length under a short lease that is renewed; when it cannot be,
 * the job is stopped in time.
 *
 *     transcode [URL [CUT]]
 *
 * The encoder is a process of its own. After two ttls of work the shell command CUT is run, which
 * cuts us off from the server; without it the encoder is let finish. */
#include <holdfast.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TTL_MS = 1500, GRACE_MS = TTL_MS / 3, FRAMES = 110, FRAME_MS = 50 };

static void fail(const char *why)
{
    fprintf(stderr, "transcode: %s\n", why);
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

static void encode(void)
{
    for (int frame = 0; frame < FRAMES; frame++)
        nanosleep(&(struct timespec){.tv_nsec = FRAME_MS * 1000000}, NULL);
}

static pid_t start_encoder(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        fail("no process");
    if (pid == 0) {
        encode();
        _exit(0);
    }
    return pid;
}

/* Is it over? Then with which status. */
static bool has_ended(pid_t encoder, int *status)
{
    pid_t ended = waitpid(encoder, status, WNOHANG);
    if (ended < 0)
        fail("the encoder cannot be waited for");
    return ended == encoder;
}

/* Kills the encoder. It must be gone before the lease can have ended: nobody else can have begun.
 */
static void stop_in_time(pid_t encoder, const hf_lease *lease)
{
    int status;
    if (kill(encoder, SIGKILL) != 0 || waitpid(encoder, &status, 0) != encoder)
        fail("the encoder cannot be stopped");
    int64_t left = hf_lease_left_ms(lease);
    printf("the lease could not be renewed: the encoder is stopped, and %" PRId64
           " ms are still left\n",
           left);
    if (left <= 0)
        fail("that was too late");
}

/* The loss is told: by now another one may hold the lock. */
static void await_loss(hf_lease *lease)
{
    struct pollfd lost = {.fd = hf_lease_fd(lease), .events = POLLIN};
    if (lost.fd < 0 || poll(&lost, 1, 2 * TTL_MS) != 1 || hf_lease_ok(lease))
        fail("the loss was not told");
    printf("then the loss is told: %s\n", hf_status_text(hf_release(lease)));
}

/* Watches encoder and lease. True: the encoder came to its end; false: it was stopped. */
static bool oversee(pid_t encoder, const hf_lease *lease, const char *cut)
{
    int64_t cut_at = now_ms() + 2 * TTL_MS;
    int status;
    while (!has_ended(encoder, &status)) {
        if (hf_lease_left_ms(lease) < GRACE_MS) {
            stop_in_time(encoder, lease);
            return false;
        }
        if (cut && now_ms() >= cut_at) {
            printf("after two ttls it is still held; now we are cut off\n");
            if (system(cut) != 0)
                fail(cut);
            cut = NULL;
        }
        poll(NULL, 0, FRAME_MS / 5);
    }
    if (status != 0)
        fail("the encoder failed");
    return true;
}

int main(int argc, char **argv)
{
    struct hf_request want = {
        .size = sizeof want, .name = "video/42", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    const char *cut = argc > 2 ? argv[2] : NULL;
    hf_client *client;
    hf_lease *lease;
    must(hf_open(argc > 1 ? argv[1] : NULL, NULL, &client));
    must(hf_acquire(client, &want, &lease));
    bool finished = oversee(start_encoder(), lease, cut);
    if (finished)
        must(hf_release(lease));
    else
        await_loss(lease);
    hf_lease_free(lease);
    hf_close(client, 1000);
    if (finished != !cut)
        fail("it should have been otherwise");
    printf("proved: %s\n",
           finished
               ? "a job of more than two ttls finished under one lease"
               : "cut off from the server, the job was stopped before its lease could end, and "
                 "then the loss was told");
    return 0;
}
