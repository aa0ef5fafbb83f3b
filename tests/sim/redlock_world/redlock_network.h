/* redlock_network.h - connections: bytes under way that come late, and go on arriving when one side
 * has long turned away. */
#pragma once
#include "redlock_world.h"

static void dial(void *ctx, unsigned line, const struct endpoint *to)
{
    struct client *c = ctx;
    (void)to;
    if (w.links == LINKS)
        abort();
    unsigned number = w.links++;
    w.link[number] = (struct link){.client = (unsigned)(c - w.client),
                                   .line = line,
                                   .server = line / QUORUM_MEMBER_CONNECTIONS,
                                   .client_open = true,
                                   .last_up = w.now,
                                   .last_down = w.now};
    c->link[line] = (int)number;
    schedule((struct occurrence){.at = w.now + delay(), .what = LINK_UP, .who = number});
}

static void send_bytes(unsigned number, enum what what, nanos *last, const void *bytes, size_t len)
{
    char *copy = malloc(len);
    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    nanos at = w.now + delay() + w.server[w.link[number].server].slow;
    *last = at > *last ? at : *last;
    schedule(
        (struct occurrence){.at = *last, .what = what, .who = number, .bytes = copy, .len = len});
}

/* Planted: where no answer came, whatever is given back in these bytes is another one's. The id is
 * the first word of 22 bytes behind the name of the verb. */
static void spoil_releases(char *bytes, size_t len)
{
    static const char id_mark[] = "\r\n$22\r\n", verb[] = "quorum_release\r\n";
    const char *end = bytes + len;
    for (char *at = bytes; (at = memmem(at, (size_t)(end - at), verb, sizeof verb - 1)); at++) {
        char *id = memmem(at, (size_t)(end - at), id_mark, sizeof id_mark - 1);
        if (id)
            id[sizeof id_mark - 1] ^= 1;
    }
}

static bool send_line(void *ctx, unsigned line, const void *bytes, size_t len)
{
    static char spoilt[1 << 18];
    struct client *c = ctx;
    bool *unheard = &c->unheard[line / QUORUM_MEMBER_CONNECTIONS];
    int number = c->link[line];
    if (number < 0)
        return false;
    if (planted == PLANT_BELIEVED_ONLY && *unheard && len <= sizeof spoilt) {
        memcpy(spoilt, bytes, len);
        spoil_releases(spoilt, len);
        bytes = spoilt;
    }
    *unheard |= c->state == ASKING;
    send_bytes((unsigned)number, TO_SERVER, &w.link[number].last_up, bytes, len);
    return true;
}

/* What was sent is still under way; behind it comes the end. */
static void close_for_client(unsigned number)
{
    struct link *l = &w.link[number];
    l->client_open = false;
    w.client[l->client].link[l->line] = -1;
    schedule((struct occurrence){
        .at = l->last_up > w.now ? l->last_up : w.now, .what = SERVER_CLOSES, .who = number});
}

static void hang_up(void *ctx, unsigned line)
{
    struct client *c = ctx;
    if (c->link[line] >= 0)
        close_for_client((unsigned)c->link[line]);
}

static void flush_server(unsigned server)
{
    struct redis_model *model = w.server[server].model;
    for (int connection; (connection = model_ready(model)) >= 0;) {
        size_t len;
        const char *bytes = model_take(model, (unsigned)connection, &len);
        for (unsigned i = w.links; i-- > 0;) {
            struct link *l = &w.link[i];
            if (l->server_open && l->server == server && l->connection == (unsigned)connection) {
                if (l->client_open)
                    send_bytes(i, TO_CLIENT, &l->last_down, bytes, len);
                break;
            }
        }
    }
}
