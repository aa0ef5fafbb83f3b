/* base_heap.c - tests of the heap of timers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "lib/sentence.h"

#define NODES 300

static bool memory_is_short;

/* Stands in for the C library's in this program, so that memory can run short at a chosen moment.
 */
void *reallocarray(void *old, size_t count, size_t size)
{
    if (!memory_is_short)
        return realloc(old, count * size);
    errno = ENOMEM;
    return NULL;
}

static void check_order(const struct heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        assert_int_equal(heap->node[i]->index, i + 1);
        if (i > 0)
            assert_true(heap->node[(i - 1) / 2]->key <= heap->node[i]->key);
    }
}

/* Repeatable numbers; their quality does not matter. */
static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static void test_empty(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node node = {0};
    assert_null(heap_first(&heap));
    heap_remove(&heap, &node);
    assert_int_equal(node.index, 0);
    heap_free(&heap);
}

static void test_sorts(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node nodes[NODES] = {0};
    uint64_t seed = 1;
    assert_int_equal(heap_reserve(&heap, NODES), HF_OK);
    for (size_t i = 0; i < NODES; i++) {
        heap_put(&heap, &nodes[i], (int64_t)draw(&seed, 100) - 50);
        check_order(&heap);
    }
    int64_t before = INT64_MIN;
    for (size_t i = 0; i < NODES; i++) {
        struct heap_node *first = heap_first(&heap);
        assert_true(first->key >= before);
        before = first->key;
        heap_remove(&heap, first);
        assert_int_equal(first->index, 0);
        check_order(&heap);
    }
    assert_null(heap_first(&heap));
    heap_free(&heap);
}

/* The smallest key of the nodes that should be in the heap, found the slow way. */
static void check_first(const struct heap *heap, const struct heap_node *nodes, const int64_t *want)
{
    uint32_t count = 0;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(nodes[i].index != 0, want[i] >= 0);
        if (want[i] < 0)
            continue;
        assert_int_equal(nodes[i].key, want[i]);
        least = want[i] < least ? want[i] : least;
        count++;
    }
    assert_int_equal(heap->count, count);
    if (count > 0)
        assert_int_equal(heap_first(heap)->key, least);
}

static void test_random_walk(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node nodes[NODES] = {0};
    int64_t want[NODES];
    uint64_t seed = 2;
    assert_int_equal(heap_reserve(&heap, NODES), HF_OK);
    for (size_t i = 0; i < NODES; i++)
        want[i] = -1;
    for (int step = 0; step < 20000; step++) {
        uint32_t i = draw(&seed, NODES);
        if (draw(&seed, 3) == 0) {
            heap_remove(&heap, &nodes[i]);
            want[i] = -1;
        } else {
            want[i] = draw(&seed, 1000);
            heap_put(&heap, &nodes[i], want[i]);
        }
        check_order(&heap);
        if (step % 16 == 0)
            check_first(&heap, nodes, want);
    }
    heap_free(&heap);
}

static void test_extremes(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node never = {0}, now = {0}, long_ago = {0};
    assert_int_equal(heap_reserve(&heap, 3), HF_OK);
    heap_put(&heap, &never, INT64_MAX);
    heap_put(&heap, &now, 0);
    heap_put(&heap, &long_ago, INT64_MIN);
    assert_ptr_equal(heap_first(&heap), &long_ago);
    heap_put(&heap, &long_ago, INT64_MAX);
    assert_ptr_equal(heap_first(&heap), &now);
    heap_free(&heap);
}

static void test_grows(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node nodes[NODES] = {0};
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(heap_reserve(&heap, i + 1), HF_OK);
        assert_true(heap.room > i);
        heap_put(&heap, &nodes[i], NODES - (int64_t)i);
        check_order(&heap);
    }
    uint32_t room = heap.room;
    assert_int_equal(heap_reserve(&heap, 1), HF_OK);
    assert_int_equal(heap.room, room);
    assert_ptr_equal(heap_first(&heap), &nodes[NODES - 1]);
    heap_free(&heap);
    assert_int_equal(nodes[0].index, 0);
    assert_null(heap.node);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct heap_node node = {0};
    assert_int_equal(heap_reserve(&heap, 1), HF_OK);
    heap_put(&heap, &node, 5);
    uint32_t room = heap.room;
    memory_is_short = true;
    hf_status status = heap_reserve(&heap, room + 1);
    memory_is_short = false;
    assert_int_equal(status, HF_NO_MEMORY);
    assert_non_null(strstr(error_text(), "no memory for 17 timers"));
    assert_int_equal(heap.room, room);
    assert_ptr_equal(heap_first(&heap), &node);
    heap_free(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("an empty heap has no first, and removing what is not in it changes nothing",
                 test_empty),
        SENTENCE("nodes come out in the order of their keys", test_sorts),
        SENTENCE("putting, moving and removing at random keeps the order and the positions",
                 test_random_walk),
        SENTENCE("the smallest and the largest key are ordinary keys", test_extremes),
        SENTENCE("room grows as reserved, never shrinks, and freeing takes all nodes out",
                 test_grows),
        SENTENCE("when there is no memory the heap is as it was", test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
