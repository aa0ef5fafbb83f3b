/* repair_stepper.h - a client goes through an operation instruction by instruction. */
#pragma once
#include "repair_verdict.h"

struct walk {
    unsigned every; /* judge every so many changes */
    uint64_t steps, changes,
        judged;           /* instructions; those that changed the table; states that were judged */
    uint64_t inside;      /* judged with a mutex of the client marked */
    uint64_t first, last; /* the instructions that made the first and the last change */
};

static char seen[1 << 20];
static size_t seen_size;

/* Has the table changed since the last look? */
static bool look_at_table(void)
{
    size_t size = (size_t)shm_file_size(world.table.fd);
    if (size > sizeof seen)
        give_up("the table is too large for this test");
    bool changed = size != seen_size;
    for (size_t at = 0; at < size; at += LOCAL_PAGE)
        if (memcmp(seen + at, world.table.map + at, LOCAL_PAGE) != 0) {
            memcpy(seen + at, world.table.map + at, LOCAL_PAGE);
            changed = true;
        }
    seen_size = size;
    return changed;
}

static int wait_for_stop(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            give_up("waitpid");
    if (!WIFSTOPPED(status))
        give_up("the stepped client ended by itself");
    return WSTOPSIG(status);
}

/* One instruction. False: it was the last one of the operation. */
static bool step(pid_t pid)
{
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
        give_up("PTRACE_SINGLESTEP");
    int signal = wait_for_stop(pid);
    if (signal != SIGTRAP && signal != SIGSTOP)
        give_up("the stepped client got a signal");
    return signal == SIGTRAP;
}

static void begin_steps(int id, struct command c)
{
    c.flags |= STEPPED;
    send_command(id, c);
    if (wait_for_stop(world.actors[id].pid) != SIGSTOP)
        give_up("the stepped client did not begin");
    look_at_table();
}

static struct reply end_steps(int id)
{
    if (ptrace(PTRACE_CONT, world.actors[id].pid, NULL, NULL) != 0)
        give_up("PTRACE_CONT");
    return read_reply(id);
}

static bool owns_a_mutex(uint32_t thread)
{
    bool owns = robust_mutex_owner(&world.table.state->grow) == thread;
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++)
        owns |= robust_mutex_owner(&world.table.shards[s].mutex) == thread;
    return owns;
}

static void step_to_death(int id, struct command c, struct robust_mutex *inside, unsigned changes)
{
    pid_t pid = world.actors[id].pid;
    begin_steps(id, c);
    while (changes) {
        if (!step(pid))
            give_up("the operation was over before its death");
        if (look_at_table() && robust_mutex_owner(inside) == world.actors[id].thread)
            changes--;
    }
    end_actor(id);
}

static void step_until(int id, struct command c, bool (*come)(void))
{
    begin_steps(id, c);
    while (!come())
        if (!step(world.actors[id].pid))
            give_up("the operation was over before its death");
    end_actor(id);
}

/* Steps Xenia through an operation and judges what her death would leave behind. Stops at the first
 * complaint. */
static bool walk_operation(const struct operation *op, struct walk *w)
{
    pid_t pid = world.actors[XENIA].pid;
    uint32_t thread = world.actors[XENIA].thread;
    static struct picture now;
    bool fine = true, judged = false;
    begin_steps(XENIA, command_of(op));
    while (fine && step(pid)) {
        w->steps++;
        if (!look_at_table())
            continue;
        w->changes++;
        w->first = w->first ? w->first : w->steps;
        w->last = w->steps;
        take_picture(&world.table, &now);
        note_tokens(&now);
        judged = w->changes % w->every == 0;
        w->judged += judged;
        w->inside += judged && owns_a_mutex(thread);
        fine = !judged || judge_copy(thread, NULL);
    }
    if (fine && !judged) {
        w->judged++;
        fine = judge_copy(thread, NULL);
    }
    if (!fine)
        return false;
    struct reply reply = end_steps(XENIA);
    if (op->command.deed == UPGRADE && reply.token &&
        reply.token <= scene_highest[op->command.name])
        return complain("the operation answers with an old token");
    return (reply.status == op->command.fails && reply.kind == op->expected) ||
           complain("the operation answers cue %d, status %d", (int)reply.kind, (int)reply.status);
}
