/* servers_query.c - what tests ask real servers, and commands to them. They use Unix sockets, which
 * lie in the servers' own directories: whatever answers there is the process that was started, and
 * TLS does not matter. */
#include "servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Questions ---- */

static const struct timeval question_patience = {.tv_sec = 60};

/* A connection past the password, or one that says in `err` what is wrong. */
static redisContext *reach(const struct server *s)
{
    redisContext *to = redisConnectUnixWithTimeout(server_socket(s), question_patience);
    assert_non_null(to);
    if (to->err)
        return to;
    redisSetTimeout(to, question_patience);
    if (server_password(s)) {
        redisReply *reply = redisCommand(to, "AUTH %s", server_password(s));
        if (reply)
            freeReplyObject(reply);
    }
    return to;
}

bool server_answers(const struct server *s)
{
    redisContext *to = reach(s);
    redisReply *reply = to->err ? NULL : redisCommand(to, "PING");
    bool does = reply && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0;
    if (reply)
        freeReplyObject(reply);
    redisFree(to);
    return does;
}

redisContext *server_connect(const struct server *s)
{
    redisContext *to = reach(s);
    if (!to->err)
        return to;
    char why[sizeof to->errstr];
    strcpy(why, to->errstr);
    redisFree(to);
    fail_msg("%s: %s", server_socket(s), why);
    return NULL;
}

static redisReply *ask(const struct server *s, const char *format, va_list arguments)
{
    redisContext *to = server_connect(s);
    redisReply *reply = redisvCommand(to, format, arguments);
    if (!reply)
        print_error("%s: %s: %s\n", server_socket(s), format, to->errstr);
    redisFree(to);
    assert_non_null(reply);
    return reply;
}

/* Checks the type of a reply; otherwise the test fails with what the server said. */
static void expect(redisReply *reply, bool as_expected, const char *format)
{
    if (as_expected)
        return;
    char said[256];
    snprintf(said, sizeof said, "a reply of type %d: %s", reply->type,
             reply->str ? reply->str : "");
    freeReplyObject(reply);
    fail_msg("%s: %s", format, said);
}

redisReply *server_cli(const struct server *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(s, format, arguments);
    va_end(arguments);
    return reply;
}

void server_does(const struct server *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(s, format, arguments);
    va_end(arguments);
    expect(reply, reply->type != REDIS_REPLY_ERROR, format);
    freeReplyObject(reply);
}

int64_t server_count(const struct server *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(s, format, arguments);
    va_end(arguments);
    expect(reply, reply->type == REDIS_REPLY_INTEGER, format);
    int64_t number = reply->integer;
    freeReplyObject(reply);
    return number;
}

/* Reads the number behind `words`, at the beginning of a line of that section. Returns false if
 * there is no such line. */
static bool find_number(const struct server *s, const char *section, const char *words,
                        int64_t *number)
{
    char line[128];
    assert_true(snprintf(line, sizeof line, "\n%s", words) < (int)sizeof line);
    redisReply *info = server_cli(s, "INFO %s", section);
    expect(info, info->type == REDIS_REPLY_STRING, "INFO");
    const char *found = strstr(info->str, line);
    if (found)
        *number = strtoll(found + strlen(line), NULL, 10);
    freeReplyObject(info);
    return found != NULL;
}

int64_t server_info_number(const struct server *s, const char *section, const char *field)
{
    char words[96];
    int64_t number = 0;
    snprintf(words, sizeof words, "%s:", field);
    if (!find_number(s, section, words, &number))
        fail_msg("INFO %s says nothing of %s", section, field);
    return number;
}

int64_t server_calls(const struct server *s, const char *command)
{
    char words[96];
    int64_t number = 0;
    snprintf(words, sizeof words, "cmdstat_%s:calls=", command);
    find_number(s, "commandstats", words, &number); /* a command that never ran is not listed */
    return number;
}

int64_t server_clock_us(const struct server *s)
{
    redisReply *time = server_cli(s, "TIME");
    assert_int_equal(time->type, REDIS_REPLY_ARRAY);
    int64_t us = atoll(time->element[0]->str) * 1000000 + atoll(time->element[1]->str);
    freeReplyObject(time);
    return us;
}

/* ---- Users ---- */

enum { RIGHTS_MAX = 64, RIGHTS_TEXT = 4096 };

/* Reads the words of the block in which the document makes the user; the first three are ACL
 * SETUSER locker. */
static size_t read_locker(const char *words[RIGHTS_MAX])
{
    static char text[RIGHTS_TEXT];
    FILE *page = fopen(HF_TESTS_FOLDER "/../docs/redis-operations.md", "r");
    assert_non_null(page);
    size_t length = 0, count = 0;
    for (char row[512]; fgets(row, sizeof row, page);) {
        if (length == 0 && strncmp(row, "ACL SETUSER locker ", 19) != 0)
            continue;
        if (strncmp(row, "```", 3) == 0)
            break;
        assert_true(length + strlen(row) < sizeof text);
        strcpy(text + length, row);
        length += strlen(row);
    }
    fclose(page);
    char *rest = text;
    for (char *word; length && (word = strsep(&rest, " \n"));)
        if (*word && count < RIGHTS_MAX)
            words[count++] = word;
    assert_in_range(count, 20, RIGHTS_MAX - 1);
    return count;
}

const char *locker_right(size_t index)
{
    const char *words[RIGHTS_MAX];
    size_t count = read_locker(words), at = 3;
    while (at < count && !strchr("+~&", *words[at]))
        at++;
    for (; at < count; at++)
        if (strchr("+~&", *words[at]) && index-- == 0)
            return words[at];
    return NULL;
}

void server_add_locker(const struct server *s, const char *name, const char *without)
{
    const char *words[RIGHTS_MAX], *kept[RIGHTS_MAX];
    size_t count = read_locker(words), keeps = 0;
    for (size_t i = 0; i < count; i++)
        if (!without || strcmp(words[i], without) != 0)
            kept[keeps++] = words[i];
    assert_true(keeps == count - (without ? 1 : 0));
    kept[2] = name;
    redisContext *to = server_connect(s);
    redisReply *reply = redisCommandArgv(to, (int)keeps, kept, NULL);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        fail_msg("ACL SETUSER: %s", reply ? reply->str : to->errstr);
    freeReplyObject(reply);
    redisFree(to);
}
