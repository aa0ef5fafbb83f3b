/* proxy_process.c - inside the proxy: connections come, the test's wishes come into force, and
 * between them it sleeps.
 */
#include "proxy_internal.h"

#include "actors.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Connections come ---- */

struct sockaddr_in proxy_loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int proxy_connect_to(uint16_t port)
{
    struct sockaddr_in at = proxy_loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static struct connection *free_place(struct proxy *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number == 0)
            return &p->shared->connection[i];
    return NULL;
}

static void begin(struct connection *c, uint32_t number, int client, int server)
{
    c->number = number;
    c->fd[0] = client;
    c->fd[1] = server;
    c->stalled_by = c->behind = 0;
    c->unanswered = 0;
    c->delivering = false;
    for (int way = 0; way < 2; way++) {
        struct stream *s = &c->stream[way];
        s->held = s->pieces = 0;
        s->come = 0;
        s->ended = s->told = s->dropping = false;
        setsockopt(c->fd[way], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
}

/* One that the server does not take is counted and closed. */
static void let_in(struct proxy *p, struct connection *place)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    uint32_t number = 1 + atomic_fetch_add(&p->shared->connections, 1);
    int server = proxy_connect_to(p->server_port);
    if (server < 0) {
        close(client);
        return;
    }
    atomic_fetch_add(&p->shared->open, 1);
    begin(place, number, client, server);
}

/* ---- Wishes ---- */

static void cut_everything(struct proxy *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number) {
            proxy_close_connection(p, &p->shared->connection[i]);
            atomic_fetch_add(&p->shared->cut, 1);
        }
}

/* A socket that was shut down listens no more and keeps its port. */
static void listen_or_not(const struct proxy *p, bool refuse)
{
    if ((refuse ? shutdown(p->listener, SHUT_RDWR) : listen(p->listener, CONNECTIONS)) != 0)
        _exit(70);
}

static void apply(struct proxy *p)
{
    uint32_t wanted = atomic_load(&p->shared->wanted);
    if (wanted == atomic_load(&p->shared->applied))
        return;
    struct overrides before = p->overrides;
    p->overrides = p->shared->overrides;
    if (p->overrides.refuse != before.refuse)
        listen_or_not(p, p->overrides.refuse);
    if (p->overrides.cuts != before.cuts)
        cut_everything(p);
    for (int i = 0; i < p->overrides.faults; i++)
        if (p->overrides.deliver[i] && !before.deliver[i])
            proxy_let_go(p, i);
    atomic_store(&p->shared->applied, wanted);
}

/* ---- Waiting ---- */

static short events_of(const struct connection *c, int side, int64_t now, int64_t *wake)
{
    if (c->delivering)
        return side == 1 ? POLLIN : 0;
    if (c->behind && c->stream[0].ended)
        return 0;
    short events =
        proxy_may_read(c, (enum proxy_way)side) && !(c->stalled_by && side == 1) ? POLLIN : 0;
    const struct stream *to = &c->stream[!side];
    if (c->stalled_by || (c->behind && side == 1) || !to->pieces)
        return events;
    if (to->piece[0].due_ns > now)
        *wake = to->piece[0].due_ns < *wake ? to->piece[0].due_ns : *wake;
    else
        events |= POLLOUT;
    return events;
}

/* Sleeps until something can be read or sent or is due, or the test rings. */
static void await_work(struct proxy *p)
{
    struct pollfd fds[2 * CONNECTIONS + 2];
    nfds_t count = 0;
    int64_t now = now_ns(), wake = INT64_MAX;
    fds[count++] = (struct pollfd){.fd = p->bell, .events = POLLIN};
    if (!p->overrides.refuse && free_place(p))
        fds[count++] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        for (int side = 0; c->number && side < 2; side++) {
            short events = events_of(c, side, now, &wake);
            if (events) /* without, poll would still tell of a hang-up, for ever */
                fds[count++] = (struct pollfd){.fd = c->fd[side], .events = events};
        }
    }
    struct timespec left = {.tv_sec = (wake - now) / 1000000000,
                            .tv_nsec = (wake - now) % 1000000000};
    ppoll(fds, count, wake == INT64_MAX ? NULL : &left, NULL);
}

/* In the freeze: notes how many bytes and connections wait. Checks and sleeps in turn. */
static void look_at_the_frozen(struct proxy *p)
{
    uint64_t waiting = 0;
    struct pollfd door = {.fd = p->listener, .events = POLLIN};
    waiting += !p->overrides.refuse && poll(&door, 1, 0) == 1;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        for (int side = 0; c->number && side < 2; side++) {
            int unread = 0;
            if (c->fd[side] >= 0 && ioctl(c->fd[side], FIONREAD, &unread) == 0)
                waiting += (uint64_t)unread + c->stream[side].held;
        }
    }
    if (waiting > atomic_load(&p->shared->frozen))
        atomic_store(&p->shared->frozen, waiting);
    struct pollfd bell = {.fd = p->bell, .events = POLLIN};
    poll(&bell, 1, FREEZE_LOOK_MS);
}

static void pass_on(struct proxy *p)
{
    struct pollfd door = {.fd = p->listener, .events = POLLIN};
    struct connection *place;
    while (!p->overrides.refuse && (place = free_place(p)) && poll(&door, 1, 0) == 1)
        let_in(p, place);
    int64_t now = now_ns();
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number)
            proxy_turn(p, &p->shared->connection[i], now);
    await_work(p);
}

_Noreturn void proxy_run(struct proxy *p)
{
    for (int i = 1; i < NSIG; i++) /* cmocka's own handlers would go on with the test here */
        signal(i, SIG_DFL);
    for (;;) {
        uint64_t rings;
        while (read(p->bell, &rings, sizeof rings) > 0)
            ;
        apply(p);
        if (p->overrides.freeze)
            look_at_the_frozen(p);
        else
            pass_on(p);
    }
}
