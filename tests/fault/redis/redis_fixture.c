/* redis_fixture.c - starts a server for each test, and reads what is in it. */
#include "redis_fixture.h"

struct scene scene;

int scene_setup(void **state)
{
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.kind = scene.kind});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return 0;
}

int scene_teardown(void **state)
{
    hf_status closed = hf_close(scene.client, 5000);
    if (closed != HF_OK)
        print_error("closing the test's own client: %s\n", hf_error_text());
    scene.client = NULL;
    if (scene.page)
        munmap(scene.page, scene.page_size);
    scene.page = NULL;
    int staged = stage_teardown(state);
    servers_end();
    return staged == 0 && closed == HF_OK ? 0 : -1;
}

static void scene_skipped(void **state)
{
    (void)state;
    server_needed(scene.kind);
    fail_msg("it is there after all");
}

int scene_judge_kind(enum server_kind kind, const char *label, const struct CMUnitTest *rows,
                     size_t count)
{
    struct CMUnitTest tests[SCENE_TESTS] = {0};
    char *names[SCENE_TESTS] = {0};
    scene.kind = kind;
    for (size_t i = 0; i < count; i++) {
        if (asprintf(&names[i], "%s: %s", label, rows[i].name) < 0)
            abort();
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = scene_skipped};
        if (!server_missing(kind))
            tests[i] = (struct CMUnitTest){.name = names[i],
                                           .test_func = rows[i].test_func,
                                           .setup_func = scene_setup,
                                           .teardown_func = scene_teardown};
    }
    int failed = _cmocka_run_group_tests(label, tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    return failed;
}

int scene_judge(const struct CMUnitTest *rows, size_t count)
{
    if (count > SCENE_TESTS)
        abort();
    return scene_judge_kind(SERVER_REDIS, "redis", rows, count) +
           scene_judge_kind(SERVER_VALKEY, "valkey", rows, count);
}

hf_client *scene_client(void)
{
    if (!scene.client && hf_open(scene.url, NULL, &scene.client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return scene.client;
}

hf_client *scene_part_client(void)
{
    hf_client *client;
    part_must(hf_open(scene.url, NULL, &client) == HF_OK);
    return client;
}

static void scene_follow_orders(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client = scene_part_client();
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

struct actor *scene_actor(void)
{
    struct actor *a = actor_start_part(scene_follow_orders, NULL);
    actor_answer(a, ORDER_GO, 0);
    return a;
}

void *scene_page(size_t size)
{
    assert_null(scene.page);
    scene.page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene.page != MAP_FAILED);
    scene.page_size = size;
    return scene.page;
}

void scene_await_queue(const char *name, int64_t waiters)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000, seen;
    while ((seen = server_count(scene.server, "ZCARD {lock:%s}:q", name)) != waiters) {
        if (now_ns() > end)
            fail_msg("%s: %lld wait, not %lld", name, (long long)seen, (long long)waiters);
        nap_us(1000);
    }
}

int64_t scene_end_of_hold(const char *name)
{
    int64_t at_ms = server_count(scene.server, "PEXPIRETIME lock:%s", name);
    assert_true(at_ms > 0);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return now_ns() + (at_ms * 1000000 - ((int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec));
}

static redisReply *scene_asks(redisContext *to, const char *format, const char *key, int type)
{
    redisReply *reply = redisCommand(to, format, key);
    if (!reply || reply->type != type)
        fail_msg("%s, %s: an unexpected reply", format, key);
    return reply;
}

int64_t scene_number(redisContext *to, const char *format, const char *key)
{
    redisReply *reply = scene_asks(to, format, key, REDIS_REPLY_INTEGER);
    int64_t number = reply->integer;
    freeReplyObject(reply);
    return number;
}

int64_t scene_count_tombs(redisContext *to, const char *key)
{
    redisReply *fields = scene_asks(to, "HKEYS %s", key, REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < fields->elements; i++)
        if (fields->element[i]->str[0] != '!')
            fail_msg("%s: %s is left", key, fields->element[i]->str);
    int64_t count = (int64_t)fields->elements;
    freeReplyObject(fields);
    return count;
}

static void scene_count_key(redisContext *to, const char *key, void *leftovers)
{
    struct leftovers *left = leftovers;
    size_t length = strlen(key);
    int64_t ttl = scene_number(to, "PTTL %s", key);
    if (ttl == -2)
        return; /* it has just ended */
    if (ttl <= 0)
        fail_msg("%s has no ttl", key);
    if (strstr(key, "}:names"))
        return; /* the index: it is bounded, and a list removes what nobody uses */
    int64_t bytes = scene_number(to, "MEMORY USAGE %s", key);
    if (length > 2 && strcmp(key + length - 2, ":t") == 0) {
        left->counters++;
    } else if (length > 6 && strcmp(key + length - 6, ":alive") == 0) {
        assert_true(ttl <=
                    PRESENCE_MS); /* it ends by itself, a moment after its client's last wait */
    } else if (strstr(key, ":inbox:")) {
        left->inboxes++;
    } else if (length > 2 && strcmp(key + length - 2, ":w") == 0) {
        left->buried += scene_count_tombs(to, key);
        left->buried_names++;
        left->bytes_buried += bytes;
    } else {
        fail_msg("%s is left", key);
    }
    left->bytes += bytes;
    left->longest = ttl > left->longest ? ttl : left->longest;
}

void scene_each_key(void (*visit)(redisContext *to, const char *key, void *arg), void *arg)
{
    redisContext *to = server_connect(scene.server);
    char cursor[32] = "0";
    do {
        redisReply *page = scene_asks(to, "SCAN %s COUNT 1000", cursor, REDIS_REPLY_ARRAY);
        snprintf(cursor, sizeof cursor, "%s", page->element[0]->str);
        for (size_t i = 0; i < page->element[1]->elements; i++)
            visit(to, page->element[1]->element[i]->str, arg);
        freeReplyObject(page);
    } while (strcmp(cursor, "0") != 0);
    redisFree(to);
}

struct leftovers scene_leftovers(void)
{
    struct leftovers left = {0};
    scene_each_key(scene_count_key, &left);
    return left;
}

int scene_connections(pid_t pid)
{
    char owner[32];
    snprintf(owner, sizeof owner, "/%d/", (int)pid);
    redisReply *list = server_cli(scene.server, "CLIENT LIST");
    assert_int_equal(list->type, REDIS_REPLY_STRING);
    int count = 0;
    char *rest = list->str;
    for (char *line; (line = strsep(&rest, "\n"));)
        count += strstr(line, " name=holdfast/") && (!pid || strstr(line, owner));
    freeReplyObject(list);
    return count;
}
