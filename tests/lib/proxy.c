/* proxy.c - the test's side of a TCP proxy that spoils what it passes on: starts its process, makes
 * wishes, and looks at what happened. proxy_internal.h says how both talk. */
#include "proxy_internal.h"

#include "actors.h"
#include "servers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_door(struct proxy *p)
{
    for (int i = 0; i < 20; i++) {
        p->port = free_port();
        struct sockaddr_in at = proxy_loopback(p->port);
        p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(p->listener >= 0);
        /* Without this it could not listen again while a connection is there. */
        setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(p->listener, (struct sockaddr *)&at, sizeof at) == 0 &&
            listen(p->listener, CONNECTIONS) == 0)
            return;
        close(p->listener);
    }
    fail_msg("no port for a proxy");
}

struct proxy *proxy_start(uint16_t server_port)
{
    struct proxy *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->server_port = server_port;
    p->shared = mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p->shared != MAP_FAILED);
    p->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(p->bell >= 0);
    open_door(p);
    pid_t parent = getpid();
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        proxy_run(p);
    }
    close(p->listener); /* only the proxy has it open: it must be able to refuse */
    return p;
}

uint16_t proxy_port(const struct proxy *p)
{
    return p->port;
}

void proxy_end(struct proxy *p)
{
    int status;
    kill(p->pid, SIGKILL);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->bell);
    munmap(p->shared, sizeof *p->shared);
    free(p);
    /* it did not end before, by itself */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Waits until `condition` is true, which the proxy makes true. */
#define await_proxy(condition, ...)                                                                \
    for (int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000; !(condition);) {                 \
        if (now_ns() > end)                                                                        \
            fail_msg(__VA_ARGS__);                                                                 \
        nap_us(50);                                                                                \
    }

static void want(struct proxy *p)
{
    p->shared->overrides = p->overrides;
    uint32_t wanted = 1 + atomic_fetch_add(&p->shared->wanted, 1);
    assert_int_equal(write(p->bell, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    await_proxy(atomic_load(&p->shared->applied) == wanted, "the proxy does not react");
}

int proxy_plant(struct proxy *p, const struct proxy_fault *fault)
{
    assert_true(p->overrides.faults < FAULTS);
    assert_true((fault->kind != PROXY_LATE && fault->kind != PROXY_BEHIND) ||
                fault->way == PROXY_REQUESTS);
    p->overrides.fault[p->overrides.faults++] = *fault;
    want(p);
    return p->overrides.faults - 1;
}

bool proxy_happened(const struct proxy *p, int fault)
{
    return atomic_load(&p->shared->happened[fault]);
}

void proxy_await(const struct proxy *p, int fault)
{
    await_proxy(proxy_happened(p, fault),
                "fault %d did not happen: %ju bytes of requests and %ju of replies came", fault,
                (uintmax_t)proxy_bytes(p, 0, PROXY_REQUESTS),
                (uintmax_t)proxy_bytes(p, 0, PROXY_REPLIES));
}

uint64_t proxy_deliver(struct proxy *p, int fault)
{
    assert_true(proxy_happened(p, fault));
    p->overrides.deliver[fault] = true;
    want(p);
    await_proxy(atomic_load(&p->shared->delivered[fault]),
                "the server does not take what came late");
    return atomic_load(&p->shared->delivered_bytes[fault]);
}

int proxy_plant_behind(struct proxy *p, uint32_t connection, uint64_t after, uint64_t others)
{
    p->overrides.others[p->overrides.faults] = others;
    return proxy_plant(p, &(struct proxy_fault){PROXY_BEHIND, PROXY_REQUESTS, connection, after});
}

uint64_t proxy_go_on(struct proxy *p, int fault)
{
    assert_int_equal(p->overrides.fault[fault].kind, PROXY_BEHIND);
    return proxy_deliver(p, fault);
}

uint64_t proxy_overtaken(const struct proxy *p, int fault)
{
    return atomic_load(&p->shared->overtaken[fault]);
}

bool proxy_went_on(const struct proxy *p, int fault)
{
    return atomic_load(&p->shared->delivered[fault]);
}

void proxy_delay(struct proxy *p, enum proxy_way way, int64_t ms)
{
    p->overrides.delay_ns[way] = ms * 1000000;
    want(p);
}

void proxy_dribble(struct proxy *p, enum proxy_way way, bool on)
{
    p->overrides.dribble[way] = on;
    want(p);
}

void proxy_dribble_every(struct proxy *p, enum proxy_way way, int64_t ms)
{
    p->overrides.every_ns[way] = ms * 1000000;
    proxy_dribble(p, way, ms > 0);
}

void proxy_refuse(struct proxy *p, bool on)
{
    p->overrides.refuse = on;
    want(p);
    if (!on)
        return;
    assert_int_equal(proxy_connect_to(p->port), -1);
    assert_int_equal(errno, ECONNREFUSED);
}

void proxy_freeze(struct proxy *p, bool on)
{
    p->overrides.freeze = on;
    want(p);
}

uint32_t proxy_cut_all(struct proxy *p)
{
    uint32_t before = atomic_load(&p->shared->cut);
    p->overrides.cuts++;
    want(p);
    return atomic_load(&p->shared->cut) - before;
}

uint64_t proxy_delayed(const struct proxy *p)
{
    return atomic_load(&p->shared->delayed);
}

uint64_t proxy_dribbled(const struct proxy *p)
{
    return atomic_load(&p->shared->dribbled);
}

uint64_t proxy_frozen(const struct proxy *p)
{
    return atomic_load(&p->shared->frozen);
}

uint32_t proxy_connections(const struct proxy *p)
{
    return atomic_load(&p->shared->connections);
}

uint32_t proxy_open(const struct proxy *p)
{
    return atomic_load(&p->shared->open);
}

uint64_t proxy_bytes(const struct proxy *p, uint32_t connection, enum proxy_way way)
{
    assert_true(connection <= COUNTED);
    return atomic_load(&p->shared->bytes[connection][way]);
}
