/* cluster_setup.c - a cluster of real servers: primaries with all slots, and replicas. */
#include "cluster_setup.h"

#include "actors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 60000, KEYS_MOST = 1000 };

static int64_t patience_end(void)
{
    return now_ns() + PATIENCE_MS * INT64_C(1000000);
}

/* ---- Starting ---- */

struct arguments {
    const char *word[40];
    unsigned count;
};

static void add(struct arguments *arguments, const char *name, const char *value)
{
    assert_true(arguments->count + 2 < sizeof arguments->word / sizeof *arguments->word);
    arguments->word[arguments->count++] = name;
    arguments->word[arguments->count++] = value;
    arguments->word[arguments->count] = NULL;
}

static void add_tls(struct arguments *arguments, const struct cluster_servers *c, bool is_first,
                    const char *plain_port)
{
    static char files[3][256];
    static const char *const names[] = {"server.crt", "server.key", "ca.crt"};
    for (int i = 0; i < 3 && !is_first; i++)
        snprintf(files[i], sizeof files[i], "%s", server_file(c->server[0], names[i]));
    if (!is_first) {
        add(arguments, "--tls-cert-file", files[0]);
        add(arguments, "--tls-key-file", files[1]);
        add(arguments, "--tls-ca-cert-file", files[2]);
    }
    if (c->options.two_ports) {
        add(arguments, "--port", plain_port);
    } else {
        add(arguments, "--tls-cluster", "yes");
        add(arguments, "--tls-replication", "yes");
    }
}

static char plain[CLUSTER_MOST][8]; /* plain port of each server, with two_ports */

/* The command line of that server, for as long as it runs. */
static const char *const *arguments_of(const struct cluster_servers *c, unsigned index)
{
    static struct arguments all[CLUSTER_MOST];
    static char timeout[16];
    struct arguments *arguments = &all[index];
    const struct cluster_options *o = &c->options;
    snprintf(timeout, sizeof timeout, "%u", o->node_timeout_ms ? o->node_timeout_ms : 1000);
    snprintf(plain[index], sizeof *plain, "%u", o->two_ports ? free_port() : 0);
    arguments->count = 0;
    add(arguments, "--cluster-enabled", "yes");
    add(arguments, "--cluster-node-timeout", timeout);
    if (o->password)
        add(arguments, "--masterauth", o->password);
    if (o->has_own_address)
        add(arguments, "--cluster-announce-ip", "127.0.0.1"); /* not where it sends from */
    if (o->has_own_address && index == 0)
        add(arguments, "--bind-source-addr", CLUSTER_OWN_ADDRESS);
    if (o->tls)
        add_tls(arguments, c, index == 0, plain[index]);
    for (const char *const *arg = o->args; arg && *arg; arg += 2)
        add(arguments, arg[0], arg[1]);
    return arguments->word;
}

static void start_servers(struct cluster_servers *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        c->server[i] = server_start(&(struct server_options){.kind = c->options.kind,
                                                             .password = c->options.password,
                                                             .tls = c->options.tls,
                                                             .args = arguments_of(c, i)});
        redisReply *id = server_cli(c->server[i], "CLUSTER MYID");
        snprintf(c->id[i], sizeof c->id[i], "%s", id->str);
        freeReplyObject(id);
    }
}

const char *cluster_tls(const struct cluster_servers *c)
{
    assert_true(c->options.tls);
    return server_directory(c->server[0]);
}

static void give_slots(const struct cluster_servers *c)
{
    unsigned n = c->options.primaries;
    for (unsigned i = 0; i < n; i++) {
        unsigned first = i * CLUSTER_SLOT_COUNT / n, last = (i + 1) * CLUSTER_SLOT_COUNT / n - 1;
        server_does(c->server[i], "CLUSTER SET-CONFIG-EPOCH %u", i + 1);
        server_does(c->server[i], "CLUSTER ADDSLOTSRANGE %u %u", first, last);
    }
    for (unsigned i = 1; i < c->count; i++)
        if (c->options.two_ports) /* the bus is 10000 above the plain port */
            server_does(c->server[0], "CLUSTER MEET 127.0.0.1 %s", plain[i]);
        else
            server_does(c->server[0], "CLUSTER MEET 127.0.0.1 %u", server_port(c->server[i]));
}

static bool info_has(const struct server *s, const char *section, const char *words)
{
    redisReply *info = strcmp(section, "cluster") == 0 ? server_cli(s, "CLUSTER INFO")
                                                       : server_cli(s, "INFO %s", section);
    bool has = info->type == REDIS_REPLY_STRING && strstr(info->str, words);
    freeReplyObject(info);
    return has;
}

static void await_info(const struct server *s, const char *section, const char *words)
{
    int64_t end = patience_end();
    while (!info_has(s, section, words)) {
        if (now_ns() > end)
            fail_msg("port %u does not say %s", server_port(s), words);
        nap_us(10000);
    }
}

static void await_all(const struct cluster_servers *c, const char *section, const char *words)
{
    for (unsigned i = 0; i < c->count; i++)
        await_info(c->server[i], section, words);
}

void cluster_start(struct cluster_servers *c, const struct cluster_options *options)
{
    char known[64];
    *c = (struct cluster_servers){.options = *options};
    c->count = options->primaries * (1 + options->replicas);
    assert_true(c->count <= CLUSTER_MOST);
    start_servers(c);
    give_slots(c);
    snprintf(known, sizeof known, "cluster_known_nodes:%u\r", c->count);
    await_all(c, "cluster", known);
    for (unsigned i = options->primaries; i < c->count; i++)
        server_does(c->server[i], "CLUSTER REPLICATE %s", c->id[i % options->primaries]);
    await_all(c, "cluster", "cluster_state:ok");
    for (unsigned i = options->primaries; i < c->count; i++)
        await_info(c->server[i], "replication", "master_link_status:up");
}

void cluster_url(const struct cluster_servers *c, const char *query, char *url, size_t size)
{
    const char *password = c->options.password;
    size_t len =
        (size_t)snprintf(url, size, "redis%s+cluster://%s%s%s", c->options.tls ? "s" : "",
                         password ? ":" : "", password ? password : "", password ? "@" : "");
    for (unsigned i = 0; i < c->options.primaries; i++)
        len += (size_t)snprintf(url + len, size - len, "%s127.0.0.1:%u", i ? "," : "",
                                server_port(c->server[i]));
    len += (size_t)snprintf(url + len, size - len, "/%s", query);
    assert_true(len < size);
}

/* ---- Slots ---- */

static const struct server *any_up(const struct cluster_servers *c)
{
    for (unsigned i = 0; i < c->count; i++)
        if (server_pid(c->server[i]) && server_answers(c->server[i]))
            return c->server[i];
    fail_msg("no server is up");
    return NULL;
}

unsigned cluster_slot_of(const struct cluster_servers *c, const char *key)
{
    return (unsigned)server_count(any_up(c), "CLUSTER KEYSLOT %s", key);
}

static unsigned index_of_port(const struct cluster_servers *c, int64_t port)
{
    for (unsigned i = 0; i < c->count; i++)
        if (server_port(c->server[i]) == port)
            return i;
    fail_msg("no server has port %lld", (long long)port);
    return 0;
}

/* Returns the index of the slot's owner according to that server. CLUSTER_MOST: nobody has the
 * slot. */
static unsigned owner_of(const struct cluster_servers *c, const struct server *s, unsigned slot)
{
    unsigned found = CLUSTER_MOST;
    redisReply *slots = server_cli(s, "CLUSTER SLOTS");
    for (size_t i = 0; i < slots->elements; i++) {
        redisReply **range = slots->element[i]->element;
        if (range[0]->integer <= slot && slot <= range[1]->integer)
            found = index_of_port(c, range[2]->element[1]->integer);
    }
    freeReplyObject(slots);
    return found;
}

unsigned cluster_primary_of(const struct cluster_servers *c, const char *key)
{
    unsigned owner = owner_of(c, any_up(c), cluster_slot_of(c, key));
    assert_true(owner < CLUSTER_MOST);
    return owner;
}

/* The configuration epoch of a node, as server `s` knows it. */
static int64_t epoch_of(const struct server *s, const char *node)
{
    redisReply *nodes = server_cli(s, "CLUSTER NODES");
    const char *line = nodes->str; /* a replica's line has the id of its primary, too */
    long long epoch = -1;
    while (line && strncmp(line, node, strlen(node)) != 0)
        line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    assert_non_null(line);
    sscanf(line, "%*s %*s %*s %*s %*s %*s %lld", &epoch);
    freeReplyObject(nodes);
    return epoch;
}

/* Returns true if each primary knows the epoch of each other, and all epochs are different. */
static bool epochs_agree(const struct cluster_servers *c)
{
    int64_t own[CLUSTER_MOST];
    for (unsigned k = 0; k < c->options.primaries; k++) {
        own[k] = epoch_of(c->server[k], c->id[k]);
        for (unsigned i = 0; i < k; i++)
            if (own[i] == own[k])
                return false;
    }
    for (unsigned k = 0; k < c->options.primaries; k++)
        for (unsigned i = 0; i < c->options.primaries; i++)
            if (i != k && epoch_of(c->server[i], c->id[k]) != own[k])
                return false;
    return true;
}

static bool owners_agree(const struct cluster_servers *c, unsigned slot, unsigned owner)
{
    for (unsigned i = 0; i < c->options.primaries; i++)
        if (owner_of(c, c->server[i], slot) != owner)
            return false;
    return true;
}

/* Waits until all servers agree on a slot's owner and on all epochs. The next owner of a slot takes
 * an epoch above all that it knows. If the present owner had a higher one, a late message of it
 * would take the slot back, and then each of the two would name the other as the owner. */
static void await_agreement(const struct cluster_servers *c, unsigned slot, unsigned owner)
{
    int64_t end = patience_end();
    while (!owners_agree(c, slot, owner) || !epochs_agree(c)) {
        if (now_ns() > end)
            fail_msg("not all servers hear of the move of slot %u", slot);
        nap_us(2000);
    }
}

void cluster_move_begin(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to)
{
    server_does(c->server[to], "CLUSTER SETSLOT %u IMPORTING %s", slot, c->id[from]);
    server_does(c->server[from], "CLUSTER SETSLOT %u MIGRATING %s", slot, c->id[to]);
}

unsigned cluster_move_keys(const struct cluster_servers *c, unsigned slot, unsigned from,
                           unsigned to, unsigned most)
{
    redisReply *keys = server_cli(c->server[from], "CLUSTER GETKEYSINSLOT %u %u", slot,
                                  most < KEYS_MOST ? most : KEYS_MOST);
    assert_int_equal(keys->type, REDIS_REPLY_ARRAY);
    unsigned count = (unsigned)keys->elements;
    for (unsigned i = 0; i < count; i++) {
        redisReply *done =
            server_cli(c->server[from], "MIGRATE 127.0.0.1 %u %b 0 5000",
                       server_port(c->server[to]), keys->element[i]->str, keys->element[i]->len);
        /* OK, or NOKEY: the key ended meanwhile */
        assert_int_equal(done->type, REDIS_REPLY_STATUS);
        freeReplyObject(done);
    }
    freeReplyObject(keys);
    return count;
}

/* Tells the target first: if the source gave up the slot before, it would know nobody that has
 * it. */
void cluster_move_end(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to)
{
    server_does(c->server[to], "CLUSTER SETSLOT %u NODE %s", slot, c->id[to]);
    server_does(c->server[from], "CLUSTER SETSLOT %u NODE %s", slot, c->id[to]);
    for (unsigned i = 0; i < c->options.primaries; i++)
        if (i != from && i != to)
            server_does(c->server[i], "CLUSTER SETSLOT %u NODE %s", slot, c->id[to]);
}

void cluster_await_move(const struct cluster_servers *c, unsigned slot, unsigned to)
{
    await_agreement(c, slot, to);
}

void cluster_move_slot(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to)
{
    cluster_move_begin(c, slot, from, to);
    while (cluster_move_keys(c, slot, from, to, KEYS_MOST))
        ;
    cluster_move_end(c, slot, from, to);
}

/* Returns false, and prints what redis-cli says, if it failed. */
static bool run_cli(const char *words)
{
    char command[600], text[1500];
    snprintf(command, sizeof command, "redis-cli --cluster %s 2>&1 </dev/null", words);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    size_t len = fread(text, 1, sizeof text - 1, output);
    text[len] = 0;
    while (fread(text, 1, 1, output) > 0)
        ;
    bool is_done = pclose(output) == 0;
    if (!is_done)
        print_message("# redis-cli --cluster %s\n%s\n", words, text);
    return is_done;
}

/* Returns true if the server took the command. */
static bool is_taken(redisReply *reply)
{
    bool is = reply->type != REDIS_REPLY_ERROR;
    if (!is)
        print_message("# %s\n", reply->str);
    freeReplyObject(reply);
    return is;
}

bool cluster_move_whole(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to)
{
    redisReply *help = server_cli(c->server[to], "CLUSTER HELP");
    bool imports = false, exports = false;
    for (size_t i = 0; i < help->elements; i++) {
        imports |= strstr(help->element[i]->str, "MIGRATION") != NULL;
        exports |= strstr(help->element[i]->str, "MIGRATESLOTS") != NULL;
    }
    freeReplyObject(help);
    if (!imports && !exports)
        return false;

    for (int64_t end = patience_end();; nap_us(20000)) { /* the last move may not be quite over */
        bool is = is_taken(
            exports ? server_cli(c->server[from], "CLUSTER MIGRATESLOTS SLOTSRANGE %u %u NODE %s",
                                 slot, slot, c->id[to])
                    : server_cli(c->server[to], "CLUSTER MIGRATION IMPORT %u %u", slot, slot));
        if (is)
            break;
        assert_true(now_ns() < end);
    }
    cluster_await_move(c, slot, to);
    return true;
}

void cluster_reshard(const struct cluster_servers *c, unsigned from, unsigned to, unsigned slots)
{
    char words[400];
    snprintf(words, sizeof words,
             "reshard 127.0.0.1:%u --cluster-from %s --cluster-to %s --cluster-slots %u "
             "--cluster-yes",
             server_port(c->server[from]), c->id[from], c->id[to], slots);
    assert_true(run_cli(words));
}

void cluster_fix(const struct cluster_servers *c, unsigned any)
{
    char words[100];
    snprintf(words, sizeof words, "fix 127.0.0.1:%u --cluster-yes", server_port(c->server[any]));
    assert_true(run_cli(words) || run_cli(words)); /* the first one may meet keys that have ended */
}

void cluster_await_replica(const struct cluster_servers *c, unsigned primary, unsigned replica)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    int64_t told = server_info_number(c->server[primary], "replication", "master_repl_offset");
    while (server_info_number(c->server[replica], "replication", "slave_repl_offset") < told) {
        assert_true(now_ns() < end);
        nap_us(5000);
    }
}

void cluster_await_promotion(const struct cluster_servers *c, unsigned index)
{
    await_info(c->server[index], "replication", "role:master");
}
