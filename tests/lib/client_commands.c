/* client_commands.c - reads INFO commandstats. */
#include "client_commands.h"

#include <stdio.h>
#include <string.h>

static const char in_scripts[] =
    " time set get del exists pttl pexpire hset hget hdel hmget hrandfield zadd zrem zrange "
    "zpopmin zrangebyscore zremrangebyscore zremrangebyrank zrank zcard zscore rpush publish "
    "spublish ";

/* Returns false for the test's own questions, each of which is an INFO: no client sends them. */
static bool is_sent_by_clients(const char *command)
{
    char word[72];
    snprintf(word, sizeof word, " %s ", command);
    return !strstr(in_scripts, word) && strcmp(command, "info") != 0;
}

struct client_commands client_commands_of(const struct server *s)
{
    struct client_commands sum = {0};
    redisReply *info = server_cli(s, "INFO commandstats");
    assert_int_equal(info->type, REDIS_REPLY_STRING);
    char *rest = info->str;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char command[64];
        long long calls;
        bool is_count = sscanf(line, "cmdstat_%63[^:]:calls=%lld", command, &calls) == 2;
        if (!is_count || !is_sent_by_clients(command))
            continue;
        sum.scripts += strcmp(command, "fcall") == 0 ? calls : 0;
        sum.blmpop += strcmp(command, "blmpop") == 0 ? calls : 0;
        sum.ssubscribe += strcmp(command, "ssubscribe") == 0 ? calls : 0;
        sum.all += calls;
    }
    freeReplyObject(info);
    return sum;
}

struct client_commands client_commands_since(const struct server *s,
                                             const struct client_commands *before)
{
    struct client_commands now = client_commands_of(s);
    return (struct client_commands){.scripts = now.scripts - before->scripts,
                                    .blmpop = now.blmpop - before->blmpop,
                                    .ssubscribe = now.ssubscribe - before->ssubscribe,
                                    .all = now.all - before->all};
}
