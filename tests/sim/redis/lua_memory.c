/* lua_memory.c - memory for the interpreter: small pieces come from lists by size, because a script makes and drops
 * hundreds of them and the C library's malloc() took a tenth of its time. */
#include "inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 16, SMALL = 256, SIZES = SMALL / STEP, BLOCK = 1 << 18 };

struct piece {
    struct piece *next;
};

struct lua_memory {
    struct piece *free[SIZES];
    struct piece *blocks;
    char *at, *end; /* what is left of the newest block */
};

struct lua_memory *lua_memory_open(void)
{
    struct lua_memory *memory = calloc(1, sizeof *memory);
    assert(memory);
    return memory;
}

void lua_memory_close(struct lua_memory *memory)
{
    for (struct piece *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(memory);
}

static unsigned list_of(size_t size)
{
    return (unsigned)((size - 1) / STEP);
}

static void new_block(struct lua_memory *memory)
{
    struct piece *block = malloc(BLOCK);
    assert(block);
    block->next = memory->blocks;
    memory->blocks = block;
    memory->at = (char *)block + STEP;
    memory->end = (char *)block + BLOCK;
}

static void *take(struct lua_memory *memory, size_t size)
{
    if (size > SMALL)
        return malloc(size);
    unsigned list = list_of(size);
    struct piece *piece = memory->free[list];
    if (piece) {
        memory->free[list] = piece->next;
        return piece;
    }
    size_t rounded = (list + 1) * (size_t)STEP;
    if ((size_t)(memory->end - memory->at) < rounded)
        new_block(memory);
    memory->at += rounded;
    return memory->at - rounded;
}

static void give_back(struct lua_memory *memory, void *at, size_t size)
{
    if (size > SMALL) {
        free(at);
        return;
    }
    struct piece *piece = at;
    piece->next = memory->free[list_of(size)];
    memory->free[list_of(size)] = piece;
}

/* lua_Alloc */
void *lua_memory_move(void *self, void *old, size_t old_size, size_t size)
{
    struct lua_memory *memory = self;
    if (old && size && (old_size > SMALL) && (size > SMALL))
        return realloc(old, size);
    if (old && size && old_size <= SMALL && size <= SMALL && list_of(old_size) == list_of(size))
        return old;
    void *fresh = size ? take(memory, size) : NULL;
    if (fresh && old)
        memcpy(fresh, old, old_size < size ? old_size : size);
    if (old)
        give_back(memory, old, old_size);
    return fresh;
}
