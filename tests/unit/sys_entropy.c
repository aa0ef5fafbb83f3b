/* sys_entropy.c - tests of the generator of ids. */
#include "lib/sentence.h"

#include "sys/entropy.h"

#include <stdlib.h>
#include <string.h>

/* RFC 8439, section 2.3.2: key 00 01 .. 1f, nonce 00 00 00 09 00 00 00 4a 00 00 00 00, block
 * count 1. */
static void test_vector(void **state)
{
    (void)state;
    static const uint32_t words[16] = {
        0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, 0x03020100, 0x07060504,
        0x0b0a0908, 0x0f0e0d0c, 0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c,
        0x00000001, 0x09000000, 0x4a000000, 0x00000000,
    };
    static const uint8_t stream[64] = {
        0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3,
        0x20, 0x71, 0xc4, 0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22,
        0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e, 0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa,
        0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9, 0x8b, 0x02, 0xa2, 0xb5, 0x12, 0x9c, 0xd1,
        0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e,
    };
    uint8_t out[64];
    entropy_chacha_block(words, 20, out);
    assert_memory_equal(out, stream, sizeof out);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

static void test_unique(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    struct entropy e;
    uint8_t(*ids)[16] = calloc(DRAWS, sizeof *ids);
    assert_non_null(ids);
    assert_int_equal(entropy_seed(&e), 0);
    for (size_t i = 0; i < DRAWS; i++)
        entropy_id(&e, ids[i]);
    qsort(ids, DRAWS, sizeof *ids, by_bytes);
    for (size_t i = 1; i < DRAWS; i++)
        assert_int_not_equal(memcmp(ids[i - 1], ids[i], sizeof *ids), 0);
    free(ids);
}

/* The same bytes, whatever the sizes in which they are taken: none is given out twice, none is left
 * out. */
static void test_any_size(void **state)
{
    (void)state;
    struct entropy whole, pieces;
    assert_int_equal(entropy_seed(&whole), 0);
    pieces = whole;
    uint8_t a[1000], b[1000];
    entropy_take(&whole, a, sizeof a);
    for (size_t at = 0, step = 1; at < sizeof b; at += step, step = step % 97 + 1) {
        step = step < sizeof b - at ? step : sizeof b - at;
        entropy_take(&pieces, b + at, step);
    }
    assert_memory_equal(a, b, sizeof a);
}

/* Ids among bytes of other sizes come from the same stream. */
static void test_ids_between(void **state)
{
    (void)state;
    struct entropy whole, pieces;
    assert_int_equal(entropy_seed(&whole), 0);
    pieces = whole;
    uint8_t a[1000], b[1000];
    size_t at = 0;
    entropy_take(&whole, a, sizeof a);
    for (size_t step = 1; at + ENTROPY_ID + step <= sizeof b;
         at += ENTROPY_ID + step, step = step % 23 + 1) {
        entropy_id(&pieces, b + at);
        entropy_take(&pieces, b + at + ENTROPY_ID, step);
    }
    assert_true(at > sizeof b - 50);
    assert_memory_equal(a, b, at);
}

static void test_two_seeds(void **state)
{
    (void)state;
    struct entropy one, two;
    assert_int_equal(entropy_seed(&one), 0);
    assert_int_equal(entropy_seed(&two), 0);
    uint8_t a[16], b[16];
    entropy_take(&one, a, sizeof a);
    entropy_take(&two, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
}

static void test_wiped(void **state)
{
    (void)state;
    static const uint8_t nothing[16];
    struct entropy e;
    uint8_t id[16];
    assert_int_equal(entropy_seed(&e), 0);
    entropy_take(&e, id, sizeof id);
    assert_memory_equal(e.block, nothing, sizeof nothing);
}

/* Behind 2^32 blocks comes the next one, not the first again. */
static void test_counter_carries(void **state)
{
    (void)state;
    struct entropy e;
    uint8_t out[64];
    assert_int_equal(entropy_seed(&e), 0);
    e.state[12] = UINT32_MAX;
    entropy_take(&e, out, sizeof out);
    assert_int_equal(e.state[12], 0);
    assert_int_equal(e.state[13], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a block is the one of RFC 8439, section 2.3.2", test_vector),
        SENTENCE("100,000 ids are all different", test_unique),
        SENTENCE("the bytes are the same in whatever sizes they are taken", test_any_size),
        SENTENCE("ids come from the same bytes", test_ids_between),
        SENTENCE("two generators give different ids", test_two_seeds),
        SENTENCE("an id that was given out cannot be read back", test_wiped),
        SENTENCE("the block counter carries into its second word", test_counter_carries),
    };
    return cmocka_run_group_tests_name("sys/entropy", tests, NULL, NULL);
}
