/* block_pool.h - memory of a connection or a client, which keeps freed blocks for the next request
 * of that size. So a cycle of acquire and release allocates nothing, and neither does nghttp2.
 *
 * Blocks are as from malloc(). They must all be freed before the pool ends. Zero is an empty pool.
 */
#pragma once
#include <stddef.h>

enum { BLOCK_SIZES = 16 }; /* 32 bytes to 6 KB; larger blocks are not kept */

struct block;
struct block_pool {
    struct block *unused[BLOCK_SIZES];
    size_t count[BLOCK_SIZES]; /* number of unused blocks */
};

void *block_alloc(struct block_pool *pool, size_t size);
void *block_calloc(struct block_pool *pool, size_t size);
/* Returns NULL without memory; the old block then stays. */
void *block_realloc(struct block_pool *pool, void *bytes, size_t size);
void block_free(struct block_pool *pool, void *bytes);
void block_pool_end(struct block_pool *pool);
