/* compare_replies.h - answers that are compared in their own way, because a server is free there.
 */
#pragma once
#include "compare_operations.h"

static redisReply *parse(const char *bytes, size_t len)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    redisReaderFeed(reader, bytes, len);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    return reply;
}

static redisReply *model_answer(unsigned line, const char *format, ...)
{
    char *request;
    size_t len;
    va_list args;
    va_start(args, format);
    int size = redisvFormatCommand(&request, format, args);
    va_end(args);
    assert_true(size > 0);
    model_feed(t.model, t.lines[line], request, (size_t)size);
    redisFreeCommand(request);
    const char *bytes = model_take(t.model, t.lines[line], &len);
    return parse(bytes, len);
}

static redisReply *server_answer(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(t.control, format, args);
    va_end(args);
    assert_non_null(reply);
    return reply;
}

static void differs_in(const char *what, const char *model, const char *server)
{
    char *text = NULL;
    if (asprintf(&text, "%s", what) < 0)
        fail_msg("no memory");
    remember(text);
    difference(0, model, strlen(model), server, strlen(server));
}

static void send_and_compare(struct request *r, unsigned line)
{
    remember_request(r, line);
    send_request(r, line);
    forget_request(r);
    if (line == WAITING_LINE && model_ready(t.model) < 0 && !server_blocks(1))
        differs_in("a request that waits", "waits", "does not wait");
    compare_lines();
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum { KEYS_MAX = 256 };

struct found {
    char *keys[KEYS_MAX];
    unsigned count;
};

/* Takes the keys of one answer of SCAN; its cursor goes into `cursor`. */
static void collect(struct found *found, redisReply *reply, char *cursor, size_t size)
{
    assert_true(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
    snprintf(cursor, size, "%s", reply->element[0]->str);
    for (size_t i = 0; i < reply->element[1]->elements; i++) {
        assert_true(found->count < KEYS_MAX);
        found->keys[found->count++] = strdup(reply->element[1]->element[i]->str);
    }
    freeReplyObject(reply);
}

/* Sorted, without repetitions, in one text. */
static char *whole_text(struct found *found)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    qsort(found->keys, found->count, sizeof *found->keys, by_text);
    for (unsigned i = 0; i < found->count; i++)
        if (i == 0 || strcmp(found->keys[i], found->keys[i - 1]) != 0)
            fprintf(to, " %s", found->keys[i]);
    fclose(to);
    for (unsigned i = 0; i < found->count; i++)
        free(found->keys[i]);
    return text;
}

static void compare_scans(void)
{
    const char *pattern =
        ONE_OF("*", "s*", "lock:*", "[sz]0", "?1", "\\s?", "[^l]*", "{*", "none*", "*0");
    const char *type = ONE_OF("", "string", "zset", "hash", "list");
    const char *count = ONE_OF("1", "2", "10", "1000");
    char cursor[32] = "0", type_word[8];
    struct found model = {.count = 0}, server = {.count = 0};
    snprintf(type_word, sizeof type_word, "%s", *type ? "TYPE" : "COUNT");
    type = *type ? type : count;
    do
        collect(&model,
                model_answer(0, "SCAN %s MATCH %s COUNT %s %s %s", cursor, pattern, count,
                             type_word, type),
                cursor, sizeof cursor);
    while (strcmp(cursor, "0") != 0);
    do
        collect(&server,
                server_answer("SCAN %s MATCH %s COUNT %s %s %s", cursor, pattern, count, type_word,
                              type),
                cursor, sizeof cursor);
    while (strcmp(cursor, "0") != 0);
    char *of_model = whole_text(&model), *of_server = whole_text(&server);
    if (strcmp(of_model, of_server) != 0)
        differs_in(pattern, of_model, of_server);
    free(of_model);
    free(of_server);
}

/* A SCAN of Redis removes what it meets expired, one of Valkey does not, and a clock that steps
 * back would show which.
 */
static void look_at_all_keys(void)
{
    struct request r = {.count = 0};
    char key[32];
    add_template(&r, "EXISTS s0 s1 h0 h1 z0 z1 l0 l1 none box lock:a lock:b lock:c");
    for (char lock = 'a'; lock <= 'c'; lock++) {
        for (const char *letter = "tqwhp"; *letter; letter++) {
            snprintf(key, sizeof key, "{lock:%c}:%c", lock, *letter);
            add_word(&r, key);
        }
    }
    send_and_compare(&r, 0);
}

static bool holds(const redisReply *all, const redisReply *name, const redisReply *value)
{
    for (size_t i = 0; i + 1 < all->elements; i += 2)
        if (all->element[i]->len == name->len &&
            memcmp(all->element[i]->str, name->str, name->len) == 0)
            return !value || (all->element[i + 1]->len == value->len &&
                              memcmp(all->element[i + 1]->str, value->str, value->len) == 0);
    return false;
}

static bool is_fair_draw(const redisReply *all, const redisReply *drawn, bool with_values,
                         bool distinct)
{
    size_t step = with_values ? 2 : 1;
    for (size_t i = 0; i < drawn->elements; i += step) {
        if (!holds(all, drawn->element[i], with_values ? drawn->element[i + 1] : NULL))
            return false;
        for (size_t j = 0; distinct && j < i; j += step)
            if (drawn->element[i]->len == drawn->element[j]->len &&
                memcmp(drawn->element[i]->str, drawn->element[j]->str, drawn->element[i]->len) == 0)
                return false;
    }
    return true;
}

static void compare_draws(void)
{
    const char *key = key_of('h'), *count = ONE_OF("0", "1", "2", "3", "100", "-1", "-7", "x");
    const char *form = ONE_OF("HRANDFIELD %s %s", "HRANDFIELD %s %s WITHVALUES");
    redisReply *model = model_answer(0, form, key, count),
               *server = server_answer(form, key, count);
    redisReply *all = server_answer("HGETALL %s", key);
    bool equal = model->type == server->type && model->elements == server->elements;
    if (equal && model->type == REDIS_REPLY_ERROR)
        equal = strcmp(model->str, server->str) == 0;
    else if (equal)
        equal = is_fair_draw(all, model, strstr(form, "WITHVALUES") != NULL, *count != '-');
    if (!equal)
        differs_in(form, model->str ? model->str : "a draw",
                   server->str ? server->str : "another draw");
    freeReplyObject(model);
    freeReplyObject(server);
    freeReplyObject(all);
}

/* A field that is each server's own. */
static bool is_own_field(const char *field)
{
    static const char *const own[] = {"run_id:", "uptime_in_seconds:", "redis_version:", NULL};
    for (const char *const *name = own; *name; name++)
        if (strncmp(field, *name, strlen(*name)) == 0)
            return true;
    return false;
}

static void compare_infos(void)
{
    const char *section = ONE_OF("server", "memory", "replication", "all", "bogus");
    redisReply *model = model_answer(0, "INFO %s", section),
               *server = server_answer("INFO %s", section);
    char *rest = model->str, *line;
    while ((line = strsep(&rest, "\n"))) {
        size_t len = is_own_field(line) ? strcspn(line, ":") + 1 : strlen(line);
        char part[128];
        snprintf(part, sizeof part, "%.*s", (int)len, line);
        if (!strstr(server->str, part))
            differs_in(section, part, server->str);
    }
    freeReplyObject(model);
    freeReplyObject(server);
}

static void compare_ids(void)
{
    redisReply *model = model_answer(0, "CLIENT ID"), *server = server_answer("CLIENT ID");
    if (model->type != server->type || model->integer < 1)
        differs_in("CLIENT ID", "no number", "a number");
    freeReplyObject(model);
    freeReplyObject(server);
}

/* The whole content of a key. */
static void compare_key(const char *key)
{
    static const char *const forms[] = {"TYPE %s",        "PTTL %s",
                                        "GET %s",         "HGETALL %s",
                                        "LRANGE %s 0 -1", "ZRANGE %s 0 -1 WITHSCORES"};
    for (unsigned i = 0; i < LENGTH(forms) && !t.differ; i++) {
        char text[128];
        struct request r = {.count = 0};
        snprintf(text, sizeof text, forms[i], key);
        add_template(&r, text);
        send_and_compare(&r, 0);
    }
}

static void compare_data(void)
{
    redisReply *keys = server_answer("KEYS *");
    for (size_t i = 0; i < keys->elements; i++)
        compare_key(keys->element[i]->str);
    freeReplyObject(keys);
}

/* These go past the lines, in database 0. */
static void compare_special(void)
{
    struct request zero = {.count = 0};
    add_template(&zero, "SELECT 0");
    send_request(&zero, 0);
    forget_request(&zero);
    compare_lines();
    switch (t.differ ? 99 : draw(10)) {
    case 0:
    case 1:
    case 2:
        compare_scans();
        look_at_all_keys();
        break;
    case 3:
    case 4:
    case 5:
        compare_draws();
        break;
    case 6:
        compare_infos();
        break;
    case 7:
        compare_ids();
        break;
    case 8:
    case 9:
        compare_data();
        break;
    }
}
