/* zk_words.c - asks a server for its settings, by the word "conf" on a connection of its own: the
 * server answers in text, and closes the connection. It answers with a refusal if its setting
 * 4lw.commands.whitelist lacks the word. */
#include "zk_admin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_PATIENCE NANOS_OF_MS(2000)

static bool take_number(struct zk *zk)
{
    struct zk_words *words = &zk->words;
    words->number = connection_numbers_take(&zk->numbers, 1, words);
    if (words->number < 0 &&
        connection_numbers_reserve(&zk->numbers, zk->numbers.room + 8, zk->host))
        words->number = connection_numbers_take(&zk->numbers, 1, words);
    return words->number >= 0;
}

bool zk_words_begin(struct zk *zk, struct zk_admin *admin, nanos now)
{
    struct zk_words *words = &zk->words;
    if (words->admin || !take_number(zk))
        return false;
    words->admin = admin;
    words->len = 0;
    words->end = now + WORDS_PATIENCE;
    zk->endpoints.first = admin->session->first;
    zk->host->dial(zk->host->ctx, (unsigned)words->number, endpoints_turn(&zk->endpoints, 0));
    return true;
}

bool zk_words_are_on(const struct zk *zk, unsigned connection)
{
    return zk->words.admin && zk->words.number == (int)connection;
}

connection_set zk_words_bit(const struct zk *zk)
{
    return zk->words.admin ? connection_set_of((unsigned)zk->words.number) : 0;
}

static struct zk_admin *end_words(struct zk *zk)
{
    struct zk_words *words = &zk->words;
    struct zk_admin *admin = words->admin;
    assert(admin);
    connection_numbers_give_back(&zk->numbers, (unsigned)words->number, 1);
    words->text[words->len] = '\0';
    words->admin = NULL;
    return admin;
}

static void hang_up(struct zk *zk)
{
    zk->host->hang_up(zk->host->ctx, (unsigned)zk->words.number);
}

void zk_words_abandon(struct zk *zk, const struct zk_admin *admin)
{
    if (zk->words.admin != admin)
        return;
    hang_up(zk);
    end_words(zk);
}

/* ---- Events ---- */

void zk_words_up(struct zk *zk)
{
    zk->host->send(zk->host->ctx, (unsigned)zk->words.number, "conf", 4);
}

void zk_words_bytes(struct zk *zk, const char *bytes, size_t len)
{
    struct zk_words *words = &zk->words;
    size_t room = sizeof words->text - 1 - words->len;
    len = len < room ? len : room;
    memcpy(words->text + words->len, bytes, len);
    words->len += len;
}

void zk_words_down(struct zk *zk)
{
    zk_diagnose_on_words(zk, end_words(zk));
}

nanos zk_words_tick(struct zk *zk, nanos now)
{
    struct zk_words *words = &zk->words;
    if (!words->admin)
        return TIME_NEVER;
    if (now < words->end)
        return words->end;
    hang_up(zk);
    words->len = 0;
    zk_words_down(zk);
    return TIME_NEVER;
}

bool zk_words_number(const struct zk *zk, const char *name, long long *value)
{
    size_t len = strlen(name);
    for (const char *at = zk->words.text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, len) != 0 || at[len] != '=')
            continue;
        *value = atoll(at + len + 1);
        return true;
    }
    return false;
}
