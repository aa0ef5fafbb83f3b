/* exclusion.c - workers that take turns. */
#include "exclusion.h"

#include "actors.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct board *board;
static char url[128];

void await_turns(int at_least)
{
    for (int waited = 0; atomic_load(&board->turns) < at_least; waited += 10) {
        if (waited > 30000)
            fail_msg("%d turns instead of %d after 30 s", atomic_load(&board->turns), at_least);
        nap_ms(10);
    }
}

int exclusion_setup(const char *of_server)
{
    snprintf(url, sizeof url, "%s", of_server);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? -1 : 0;
}

void exclusion_teardown(void)
{
    if (board)
        munmap(board, sizeof *board);
}

hf_client *connect_with(const char *settings)
{
    char whole[192];
    hf_client *client;
    snprintf(whole, sizeof whole, "%s%s", url, settings);
    if (hf_open(whole, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

hf_client *connect_here(void)
{
    return connect_with("");
}

static void note_token(uint64_t token)
{
    uint64_t before = atomic_exchange(&board->token, token);
    atomic_fetch_add(&board->token_went_back, token <= before);
}

static void take_turn(hf_client *client)
{
    hf_lease *lease;
    hf_status status =
        hf_acquire(client, ASK(.name = "e", .ttl_ms = WORKER_TTL_MS, .wait_ms = 20000), &lease);
    if (status != HF_OK) {
        nap_ms(20);
        return;
    }

    atomic_store(&board->inside, (int)getpid());
    note_token(hf_lease_token(lease));
    nap_ms(2);
    bool still_mine = atomic_load(&board->inside) == (int)getpid();
    if (hf_lease_ok(lease)) {
        atomic_fetch_add(&board->overlaps, !still_mine);
        atomic_fetch_add(&board->turns, 1);
    }
    hf_lease_free(lease);
}

static pid_t start_worker(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;

    hf_client *client = connect_here();
    while (!atomic_load(&board->stop))
        take_turn(client);
    if (hf_close(client, 2000) != HF_OK)
        _exit(2);
    _exit(0);
}

void start_workers(pid_t pid[WORKERS])
{
    memset(board, 0, sizeof *board);
    for (int i = 0; i < WORKERS; i++)
        pid[i] = start_worker();
    await_turns(5);
}

void replace_worker(pid_t *pid)
{
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = start_worker();
}

void stop_workers(const pid_t pid[WORKERS])
{
    atomic_store(&board->stop, 1);
    for (int i = 0; i < WORKERS; i++)
        waitpid(pid[i], NULL, 0);
    assert_int_equal(atomic_load(&board->overlaps), 0);
    assert_int_equal(atomic_load(&board->token_went_back), 0);
}
