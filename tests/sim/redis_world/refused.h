/* refused.h - the errors with which the server can refuse a call of a script, half-way through it.
 */
#pragma once
#include <string.h>

/* A server that keeps its promises says all of them but the fourth before the script's first write
 * only. Here they come at any call: nothing may depend on that. */
static const struct call_error {
    const char *name, *text;
} call_errors[] = {
    {"oom", "OOM command not allowed when used memory > 'maxmemory'."},
    {"misconf", "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to "
                "persist to disk."},
    {"noreplicas", "NOREPLICAS Not enough good replicas to write."},
    {"noperm", "ERR The user executing the script can't run this command or subcommand"},
    {"readonly", "READONLY You can't write against a read only replica."},
    {"error", "ERR something else went wrong"},
};
enum { CALL_ERRORS = sizeof call_errors / sizeof call_errors[0] };

/* What scripts call: rights that can be taken away. */
static const char *const called_commands[] = {
    "time",   "get",   "set",   "del",   "exists",  "pttl",      "pexpire", "hget",
    "hset",   "hdel",  "hmget", "zadd",  "zrem",    "zpopmin",   "zrange",  "zrangebyscore",
    "zscore", "zrank", "zcard", "rpush", "publish", "hrandfield"};
enum { CALLED_COMMANDS = sizeof called_commands / sizeof called_commands[0] };
