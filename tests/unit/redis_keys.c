/* redis_keys.c - tests of the keys of locks: which names are refused, and which keys are locks. */
#include "engines/redis/key_slot.h"
#include "engines/redis/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static hf_status status_of(const char *prefix, const char *name)
{
    struct redis_keys keys;
    return redis_keys_of(&keys, prefix, name, strlen(name));
}

static void test_braces_and_tildes(void **state)
{
    static const char *const names[] = {"{redlock}a", "{redlock}", "{",    "{a", "~",     "~a",
                                        "~ab:c",      "{a}:qq",    "{a}:", "}",  "a{b}:q"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(status_of("", names[i]), HF_OK);
    assert_int_equal(status_of("{app}:", "job"), HF_OK);
}

static void test_companions_are_refused(void **state)
{
    static const char *const names[] = {
        "{job}:q", "{job}:t", "~q:a}b", "~l:a", "{}:inbox:abc", "{}:names", "{lock:}:names:whole"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(status_of("", names[i]), HF_INVALID);
        assert_int_equal(status_of("lock:", names[i]), HF_OK);
    }
    assert_int_equal(status_of("{app}:", "q"), HF_INVALID);
}

/* Whatever the name, the keys beside its lock are no locks, for any client without a prefix. */
static void test_no_companion_is_a_lock(void **state)
{
    static const char *const names[] = {"job", "{redlock}a", "a}b", "{a", "~ab:c", "x"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct redis_keys keys;
        assert_int_equal(redis_keys_of(&keys, "", names[i], strlen(names[i])), HF_OK);
        for (const char *letter = REDIS_COMPANION_LETTERS; *letter; letter++) {
            keys.companion[keys.letter] = *letter;
            assert_null(redis_keys_name("", keys.companion, keys.companion_len));
        }
        assert_string_equal(redis_keys_name("", names[i], strlen(names[i])), names[i]);
    }
}

/* As CLUSTER KEYSLOT of a server says. */
static void test_slots(void **state)
{
    static const struct {
        const char *key;
        unsigned slot;
    } known[] = {{"123456789", 12739}, {"foo", 12182}, {"lock:{foo}x", 12182}, {"", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(redis_slot_of(known[i].key, strlen(known[i].key)), known[i].slot);

    for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot += 97) {
        char tag[SLOT_TAG_MAX];
        redis_slot_tag(slot, tag);
        assert_int_equal(redis_slot_of(tag, strlen(tag)), slot);
    }
}

/* Also where a } would end the hash tag early, or there is no whole one (G45). */
static void test_one_slot(void **state)
{
    static const char *const names[] = {"job", "a}b", "a{}b", "{x}", "x{y}z", "{",
                                        "}{",  "~a",  "{}",   "}",   "{a}b}", "a{b"};
    static const char *const prefixes[] = {"lock:", "", "{app}:", "app}"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names * 4; i++) {
        const char *name = names[i / 4], *prefix = prefixes[i % 4];
        struct redis_keys keys;
        if (redis_keys_in_cluster(&keys, prefix, name, strlen(name)) != HF_OK)
            continue;
        for (const char *letter = REDIS_COMPANION_LETTERS; *letter; letter++) {
            keys.companion[keys.letter] = *letter;
            assert_int_equal(redis_slot_of(keys.companion, keys.companion_len),
                             redis_slot_of(keys.lock, keys.lock_len));
            assert_null(redis_keys_name("", keys.companion, keys.companion_len));
        }
    }
}

#define SENTENCE(sentence, test)                                                                   \
    {                                                                                              \
        .name = sentence, .test_func = test                                                        \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("names may begin with { and ~, as those of other libraries do",
                 test_braces_and_tildes),
        SENTENCE("a name whose key is that of another lock's queue is refused",
                 test_companions_are_refused),
        SENTENCE("no key beside a lock is taken for a lock", test_no_companion_is_a_lock),
        SENTENCE("slots are those of the servers, and each has a hash tag", test_slots),
        SENTENCE("in a cluster all keys of a lock are in one slot", test_one_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
