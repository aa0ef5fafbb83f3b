/* pty.c - types at a command on a pseudo terminal and waits for what it answers.
 *
 *     pty STEP... -- CMD...
 *
 * STEP is send:TEXT (\r, \n, \\ and \xNN are understood), expect:TEXT (waits until TEXT comes
 * after what was last expected), or size:COLUMNS. After the steps it waits for CMD to end. Prints
 * the whole transcript, then a line "exit CODE". Ends with 1 when something expected did not come
 * within 20 seconds; CMD's session then gets SIGKILL. */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 20000

struct session {
    int master;
    pid_t pid;
    char text[1 << 20];
    size_t len;     /* of the transcript */
    size_t matched; /* the end of what was expected last */
    bool closed;
};

static struct session session;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads what there is, or waits for it until then; false when the time is over or nothing can come
 * any more. */
static bool hear(int64_t until_ms)
{
    struct pollfd ready = {.fd = session.master, .events = POLLIN};
    int64_t left = until_ms - now_ms();
    if (session.closed || left <= 0 || session.len >= sizeof session.text - 1)
        return false;
    if (poll(&ready, 1, (int)left) <= 0)
        return errno == EINTR;
    ssize_t got =
        read(session.master, session.text + session.len, sizeof session.text - 1 - session.len);
    if (got <= 0) {
        session.closed = true;
        return false;
    }
    session.len += (size_t)got;
    return true;
}

static bool expect(const char *text)
{
    int64_t until_ms = now_ms() + PATIENCE_MS;
    for (;;) {
        char *from = session.text + session.matched;
        char *found = memmem(from, session.len - session.matched, text, strlen(text));
        if (found) {
            session.matched = (size_t)(found - session.text) + strlen(text);
            return true;
        }
        if (!hear(until_ms))
            return false;
    }
}

/* Understands \r \n \\ \xNN in place. */
static size_t unescape(char *text)
{
    char *out = text;
    for (char *in = text; *in; in++) {
        if (*in != '\\') {
            *out++ = *in;
        } else if (in[1] == 'x') {
            char digits[3] = {in[2], in[2] ? in[3] : 0, 0};
            *out++ = (char)strtol(digits, NULL, 16);
            in += 3;
        } else {
            in++;
            *out++ = *in == 'r' ? '\r' : *in == 'n' ? '\n' : *in;
        }
    }
    return (size_t)(out - text);
}

static bool do_step(char *step)
{
    if (strncmp(step, "expect:", 7) == 0)
        return expect(step + 7);
    if (strncmp(step, "size:", 5) == 0) {
        struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)atoi(step + 5)};
        return ioctl(session.master, TIOCSWINSZ, &size) == 0;
    }
    if (strncmp(step, "send:", 5) != 0)
        return false;
    size_t len = unescape(step + 5);
    return write(session.master, step + 5, len) == (ssize_t)len;
}

/* The exit code of CMD, or -1 when it does not end in time. */
static int await_end(void)
{
    int status;
    int64_t until_ms = now_ms() + PATIENCE_MS;
    while (hear(until_ms))
        continue;
    struct timespec pause = {.tv_nsec = 5000000};
    while (waitpid(session.pid, &status, WNOHANG) == 0) {
        if (now_ms() > until_ms)
            return -1;
        nanosleep(&pause, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    int at = 1, end = 1;
    struct winsize size = {.ws_row = 24, .ws_col = 200};
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    if (end + 1 >= argc)
        return 64;
    session.pid = forkpty(&session.master, NULL, NULL, &size);
    if (session.pid < 0) { /* and -1 must never reach kill() */
        perror("pty: forkpty");
        return 70;
    }
    if (session.pid == 0) {
        execvp(argv[end + 1], argv + end + 1);
        _exit(127);
    }
    while (at < end && do_step(argv[at]))
        at++;
    int code = at == end ? await_end() : -1;
    fwrite(session.text, 1, session.len, stdout);
    if (code >= 0) {
        printf("\nexit %d\n", code);
        return 0;
    }
    printf("\nstuck at: %s\n", at < end ? argv[at] : "the end");
    kill(session.pid, SIGKILL);
    close(session.master);
    return 1;
}
