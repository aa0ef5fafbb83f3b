/* sentinel_listen.c - subscribes to the announcements of a sentinel, and reads those about the
 * primary. */
#include "sentinel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define PING_EVERY NANOS_OF_MS(5000)

static const char *const channels[] = {
    "+switch-master",
    "+selected-slave",
    "-failover-abort-no-good-slave",
    "-failover-abort-slave-timeout",
    "-failover-abort-not-elected",
};
enum { CHANNELS = sizeof channels / sizeof *channels };

/* ---- The subscription ---- */

void sentinel_listen_up(struct sentinel *s, struct sentinel_node *node, nanos now)
{
    assert(node->listen.state == SENTINEL_UP);
    bool is_sent = sentinel_connection_log_in(s, &node->listen);

    resp_command_begin(&s->command, 1 + CHANNELS);
    resp_command_text(&s->command, "SUBSCRIBE");
    for (int i = 0; i < CHANNELS; i++)
        resp_command_text(&s->command, channels[i]);
    is_sent = sentinel_connection_send(s, &node->listen) && is_sent;

    node->listen.next = SENTINEL_REQ_EVENTS;
    node->listen.ping_at = now + PING_EVERY;
    if (!is_sent) {
        sentinel_connection_fail(s, &node->listen, now);
        return;
    }

    /* Ask all sentinels: announcements before the subscription were missed, and the very first
     * answer may have come from a sentinel that was cut off. */
    node->listen.failures = 0;
    primary_query_all(s, now);
}

nanos sentinel_listen_tick(struct sentinel *s, struct sentinel_node *node, nanos now)
{
    assert(!node->listen.replies || node->listen.state == SENTINEL_UP);
    struct sentinel_connection *c = &node->listen;
    bool is_wanted = s->listen_from && now >= s->listen_from;

    if (c->state == SENTINEL_DOWN && is_wanted)
        sentinel_connection_dial(s, node, c, now);
    if (c->state == SENTINEL_DOWN && is_wanted)
        return c->dial_at;
    if (c->state == SENTINEL_DOWN)
        return s->listen_from ? s->listen_from : TIME_NEVER;

    bool is_tested = c->state == SENTINEL_UP && c->ping_at;
    nanos due = is_tested ? c->ping_at : c->since + s->connect_timeout;
    if (now < due)
        return due;
    if (!is_tested) {
        sentinel_connection_fail(s, c, now);
        return c->dial_at;
    }

    resp_command_begin(&s->command, 1);
    resp_command_text(&s->command, "PING");
    c->since = now;
    c->ping_at = 0;
    if (!sentinel_connection_send(s, c))
        sentinel_connection_fail(s, c, now);
    return now + s->connect_timeout;
}

/* ---- Announcements ---- */

enum { WORDS_MAX = 8 };

/* Splits a text at blanks. Returns the number of words. */
static int split(char *text, const char *word[WORDS_MAX])
{
    int words = 0;
    char *rest = text;
    for (char *at; words < WORDS_MAX && (at = strsep(&rest, " "));)
        if (*at)
            word[words++] = at;
    return words;
}

/* Reads "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT". */
static void on_switch(struct sentinel *s, const char *const word[WORDS_MAX], int words, nanos now)
{
    if (words == 5 && strcmp(word[0], s->name) == 0)
        primary_on_switch(s, word[3], word[4], now);
}

static void on_event(struct sentinel *s, const char *channel, const char *message, nanos now)
{
    char text[1024];
    const char *word[WORDS_MAX] = {0};
    if (strlen(message) >= sizeof text)
        return;

    snprintf(text, sizeof text, "%s", message);
    int words = split(text, word);

    if (strcmp(channel, "+switch-master") == 0) {
        on_switch(s, word, words, now);
        return;
    }

    /* Reads "slave NAME HOST PORT @ PRIMARY HOST PORT" or "master PRIMARY HOST PORT". */
    bool is_chosen = strcmp(channel, "+selected-slave") == 0;
    int at = is_chosen ? 5 : 1;
    if (words > at && strcmp(word[at], s->name) == 0)
        primary_on_choice(s, is_chosen, now);
}

void sentinel_listen_reply(struct sentinel *s, struct sentinel_node *node,
                           const struct resp_reply *resp, nanos now)
{
    assert(node->listen.next == SENTINEL_REQ_EVENTS);
    node->listen.ping_at = now + PING_EVERY;
    if (resp->type == RESP_ERROR) {
        snprintf(node->why, sizeof node->why, "%.200s", resp->text);
        sentinel_connection_fail(s, &node->listen, now);
        return;
    }

    const struct resp_reply *kind = resp_item(resp, 0), *channel = resp_item(resp, 1),
                            *message = resp_item(resp, 2);
    bool is_event = kind && kind->type == RESP_TEXT && strcmp(kind->text, "message") == 0;
    bool is_whole = channel && message && channel->type == RESP_TEXT && message->type == RESP_TEXT;
    if (is_event && is_whole)
        on_event(s, channel->text, message->text, now);
}
