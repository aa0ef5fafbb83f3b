/* repair_clients.h - clients are started, told what to do and ended. */
#pragma once
#include "repair_role.h"

#include <errno.h>

/* ---- Clients come and go ---- */

static struct reply read_reply(int id)
{
    struct reply reply;
    if (read(world.actors[id].socket, &reply, sizeof reply) != sizeof reply)
        give_up("a client does not answer");
    world.actors[id].thread = reply.thread;
    return reply;
}

static void start_actor(int id)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        give_up("socketpair");
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork");
    if (pid == 0) {
        for (int i = 0; i < ACTORS; i++)
            if (world.actors[i].pid)
                close(world.actors[i].socket);
        close(pair[0]);
        live_as(id, pair[1]);
    }
    close(pair[1]);
    world.actors[id] = (struct actor){.pid = pid, .socket = pair[0]};
    read_reply(id);
}

static void end_actor(int id)
{
    struct actor *a = &world.actors[id];
    if (!a->pid)
        return;
    kill(a->pid, SIGKILL);
    int status;
    do {
        while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR)
            ;
    } while (WIFSTOPPED(status));
    close(a->socket);
    a->pid = 0;
}

static void send_command(int id, struct command c)
{
    if (write(world.actors[id].socket, &c, sizeof c) != sizeof c)
        give_up("a client does not listen");
}

static void tell(int id, struct command c, enum reply_kind expected)
{
    send_command(id, c);
    struct reply reply = read_reply(id);
    if (reply.status != HF_OK || reply.kind != expected) {
        fprintf(stderr, "client %d, deed %d, name %s: status %d, cue %d instead of %d\n", id,
                (int)c.deed, names[c.name].word, (int)reply.status, (int)reply.kind, (int)expected);
        give_up("the scene cannot be set");
    }
    if (c.deed == JOIN)
        world.actors[id].client = reply.client;
}

/* ---- What they have done before the death ---- */

static void hold(int id, enum name name, uint32_t units, uint32_t flags)
{
    tell(id,
         (struct command){.deed = ASK, .slot = name, .name = name, .units = units, .flags = flags},
         REPLY_GRANTED);
    if (flags & LOOSELY && !(flags & QUEUE))
        tell(id, (struct command){.deed = DETACH, .slot = name, .name = name}, REPLY_KINDS);
}

static void wait_behind(int id, enum name name, uint32_t slot, uint32_t units, uint32_t flags)
{
    tell(id,
         (struct command){
             .deed = ASK, .slot = slot, .name = name, .units = units, .flags = flags | QUEUE},
         REPLY_QUEUED);
}

static void release(int id, enum name name)
{
    tell(id, (struct command){.deed = RELEASE, .slot = name, .name = name}, REPLY_RELEASED);
}
