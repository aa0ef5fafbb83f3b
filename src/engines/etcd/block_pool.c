/* block_pool.c - keeps freed blocks of memory, by size. */
#include "block_pool.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 128 /* unused blocks of a size */ };

/* Lies in front of the bytes of a block. */
struct block {
    alignas(max_align_t) struct block *next; /* next unused block of its size */
    size_t room;
};

static struct block *block_of(void *bytes)
{
    return (struct block *)bytes - 1;
}

/* Two sizes for each power of two: 32, 48, 64, 96 and so on. */
static size_t room_of(unsigned number)
{
    return (size_t)(number % 2 ? 48 : 32) << number / 2;
}

/* Returns the number of the smallest size that is enough; BLOCK_SIZES: it is too large. */
static unsigned size_for(size_t wanted)
{
    unsigned number = 0;
    while (number < BLOCK_SIZES && room_of(number) < wanted)
        number++;
    return number;
}

void *block_alloc(struct block_pool *pool, size_t size)
{
    unsigned number = size_for(size);
    struct block *block = number < BLOCK_SIZES ? pool->unused[number] : NULL;
    if (block) {
        pool->unused[number] = block->next;
        pool->count[number]--;
        return block + 1;
    }

    size_t room = number < BLOCK_SIZES ? room_of(number) : size;
    block = room <= SIZE_MAX - sizeof *block ? malloc(sizeof *block + room) : NULL;
    if (!block)
        return NULL;
    block->room = room;
    return block + 1;
}

void *block_calloc(struct block_pool *pool, size_t size)
{
    void *bytes = block_alloc(pool, size);
    if (bytes)
        memset(bytes, 0, size);
    return bytes;
}

void *block_realloc(struct block_pool *pool, void *bytes, size_t size)
{
    size_t room = bytes ? block_of(bytes)->room : 0;
    if (bytes && room >= size)
        return bytes;

    void *larger = block_alloc(pool, size);
    if (larger && bytes) {
        memcpy(larger, bytes, room);
        block_free(pool, bytes);
    }
    return larger;
}

void block_free(struct block_pool *pool, void *bytes)
{
    if (!bytes)
        return;
    struct block *block = block_of(bytes);
    unsigned number = size_for(block->room);
    if (number == BLOCK_SIZES || pool->count[number] >= KEPT_MAX) {
        free(block);
        return;
    }

    assert(block->room == room_of(number));
    block->next = pool->unused[number];
    pool->unused[number] = block;
    pool->count[number]++;
}

void block_pool_end(struct block_pool *pool)
{
    for (unsigned number = 0; number < BLOCK_SIZES; number++) {
        while (pool->unused[number]) {
            struct block *block = pool->unused[number];
            pool->unused[number] = block->next;
            free(block);
        }
        pool->count[number] = 0;
    }
}
