/* table.c - the shared file: making it, checking it, mapping it, growing it. */
#include "table.h"

#include "base/why.h"
#include "sys/clock.h"
#include "sys/mapping.h"
#include "sys/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_TRIES = 100 };

uint32_t hf_table_layout(void)
{
    static const size_t shape[] = {
        sizeof(pthread_mutex_t),
        sizeof(struct hf_shard),
        sizeof(struct hf_resource),
        sizeof(struct hf_entry),
        sizeof(struct hf_member),
        offsetof(struct hf_resource, name),
        offsetof(struct hf_entry, owner),
        offsetof(struct hf_entry, label),
        offsetof(struct hf_member, bell),
        LOCAL_CELL,
        LOCAL_SHARDS,
        LOCAL_BUCKETS,
        LOCAL_CELLS_AT,
    };
    uint32_t signature = 2166136261u;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        signature = (signature ^ (uint32_t)shape[i]) * 16777619u;
    return signature;
}

uint64_t hf_table_checksum(const struct hf_local_head *page)
{
    const uint8_t *bytes = (const uint8_t *)page;
    const size_t at = offsetof(struct hf_local_head, checksum);
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < LOCAL_PAGE; i++) {
        bool skipped = i >= at && i < at + sizeof page->checksum;
        sum = (sum ^ (skipped ? 0 : bytes[i])) * 1099511628211u;
    }
    return sum;
}

static void map_parts(struct hf_table *t, char *map)
{
    t->map = map;
    t->head = (struct hf_local_head *)(void *)map;
    t->state = (struct hf_local_state *)(void *)(map + LOCAL_STATE_AT);
    t->shards = (struct hf_shard *)(void *)(map + LOCAL_SHARDS_AT);
    t->cells = (union hf_cell *)(void *)(map + LOCAL_CELLS_AT);
}

static uint32_t chunks_of_size(int64_t size)
{
    size = size < (int64_t)LOCAL_MAP ? size : (int64_t)LOCAL_MAP;
    return size < LOCAL_CELLS_AT ? 0 : (uint32_t)((size - LOCAL_CELLS_AT) / LOCAL_CHUNK);
}

uint32_t hf_table_backed(struct hf_table *t, uint32_t chunks)
{
    uint32_t has = chunks_of_size(hf_mapping_size(t->fd));
    atomic_store_explicit(&t->backed, has, memory_order_relaxed);
    if (chunks <= has)
        return chunks;
    atomic_store_explicit(&t->damaged, true, memory_order_relaxed);
    return has;
}

union hf_cell *hf_cell_beyond(struct hf_table *t, uint32_t index)
{
    uint32_t cells = hf_table_cells(t);
    if (index != 0 && index < cells) {
        atomic_store_explicit(&t->last, cells - 1, memory_order_relaxed);
        return &t->cells[index];
    }
    atomic_store_explicit(&t->damaged, true, memory_order_relaxed);
    return &t->outside;
}

/* ---- Making one ---- */

static void write_head(struct hf_local_head *head, const struct hf_place *here, uint64_t token_floor)
{
    memcpy(head->magic, LOCAL_MAGIC, sizeof head->magic);
    head->version = LOCAL_VERSION;
    head->layout = hf_table_layout();
    memcpy(head->boot_id, here->boot_id, sizeof head->boot_id);
    head->pid_namespace = here->pid_namespace;
    head->time_namespace = here->time_namespace;
    memcpy(head->libc, here->libc, sizeof head->libc);
    head->token_floor = token_floor;
    head->checksum = hf_table_checksum(head);
}

static int write_new(struct hf_table *t, const struct hf_place *here, uint64_t token_floor)
{
    int error = hf_robust_init(&t->state->grow);
    for (uint32_t s = 0; s <= LOCAL_SHARDS && !error; s++) {
        error = hf_robust_init(&t->shards[s].mutex);
        t->shards[s].token_floor = token_floor;
    }
    t->state->room = chunks_of_size(LOCAL_START);
    t->state->chunks = 1; /* the registry's first; cell 0 is none */
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK; i++)
        t->cells[i].head.shard = LOCAL_REGISTRY;
    t->cells[0].head.state = CELL_RESERVED;
    struct hf_shard *registry = &t->shards[LOCAL_REGISTRY];
    for (uint32_t i = 1; i < LOCAL_PER_CHUNK; i++) {
        t->cells[i].head.next = registry->free.head;
        registry->free.head = i;
        registry->free.count++;
    }
    write_head(t->head, here, token_floor);
    return error;
}

static hf_status why_errno(const char *path, int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return hf_why(HF_DENIED, "%s: %s", path, strerror(error));
    case ELOOP:
        return hf_why(HF_DENIED, "%s: is a symbolic link; a lock table must be a file of its own", path);
    case EREMOTE:
        return hf_why(HF_CONFIG, "%s: is on a network file system; locks in shared memory work on one machine only",
                      path);
    case EFTYPE_NOT_FILE:
        return hf_why(HF_DAMAGED, "%s: is not a regular file; nothing was changed", path);
    default:
        return hf_why(HF_UNAVAILABLE, "%s: %s", path, strerror(error));
    }
}

/* Makes a complete table under a name of its own and then gives it its path, so that nobody ever sees half of one. With
 * `old` it takes the place of that table, from before the last boot, and its owner and group. EEXIST: somebody
 * else was faster. */
static hf_status make_table(const char *path, mode_t mode, const struct hf_place *here, uint64_t token_floor,
                            const struct hf_mapping_stat *old)
{
    struct hf_table t = {.fd = -1};
    char temporary[sizeof t.path + 32];
    int error = hf_mapping_create(path, mode, LOCAL_START, temporary, sizeof temporary, &t.fd);
    if (error == EREMOTE)
        return why_errno(path, error);
    if (error)
        return hf_why(error == ENOSPC || error == EDQUOT  ? HF_FULL
                      : error == EACCES || error == EPERM ? HF_DENIED
                                                          : HF_UNAVAILABLE,
                      "%s: cannot make the lock table: %s", path, strerror(error));
    char *map = hf_mapping_map(t.fd, LOCAL_START);
    if (map) {
        map_parts(&t, map);
        error = write_new(&t, here, token_floor);
        hf_mapping_unmap(map, LOCAL_START);
    } else {
        error = errno;
    }
    if (!error && old)
        error = hf_mapping_inherit(t.fd, old);
    if (!error)
        error = old ? hf_mapping_replace(temporary, path) : hf_mapping_publish(temporary, path);
    hf_mapping_discard(temporary);
    close(t.fd);
    if (error && error != EEXIST)
        return hf_why(error == EPERM || error == EACCES ? HF_DENIED : HF_UNAVAILABLE,
                      "%s: cannot make the lock table: %s", path, strerror(error));
    return HF_OK;
}

/* ---- Checking one ---- */

static hf_status refuse(const struct hf_table *t, const char *reason)
{
    return hf_why(HF_DAMAGED, "%s: %s; nothing was changed", t->path, reason);
}

static hf_status check_head(const struct hf_table *t, int64_t size)
{
    char reason[160];
    if (size < LOCAL_PAGE || memcmp(t->head->magic, LOCAL_MAGIC, sizeof t->head->magic) != 0)
        return refuse(t, "not a Holdfast table");
    if (t->head->checksum != hf_table_checksum(t->head))
        return refuse(t, "damaged: the checksum of its first page does not fit");
    if (t->head->version != LOCAL_VERSION || t->head->layout != hf_table_layout()) {
        snprintf(reason, sizeof reason,
                 "a Holdfast table of another layout (version %u.%08x, this program has %u.%08x)", t->head->version,
                 t->head->layout, (unsigned)LOCAL_VERSION, hf_table_layout());
        return refuse(t, reason);
    }
    if (size < LOCAL_START)
        return refuse(t, "damaged: it is shorter than it says");
    uint32_t chunks = t->state->chunks; /* before the size is read anew: the table may be growing */
    if (chunks_of_size(hf_mapping_size(t->fd)) < chunks)
        return refuse(t, "damaged: it is shorter than it says");
    return HF_OK;
}

/* Robust futexes compare bare thread ids and clocks are per namespace: with another namespace the kernel would mark a
 * living holder's mutex dead. */
static hf_status check_place(const struct hf_table *t, const struct hf_place *here)
{
    if (t->head->pid_namespace != here->pid_namespace)
        return refuse(t, "belongs to another pid namespace (container); give each its own table");
    if (t->head->time_namespace != here->time_namespace)
        return refuse(t, "belongs to another time namespace; give each its own table");
    if (strncmp(t->head->libc, here->libc, sizeof here->libc) != 0) {
        char reason[160];
        snprintf(reason, sizeof reason, "was made with %.31s, this program runs with %.31s", t->head->libc, here->libc);
        return refuse(t, reason);
    }
    return HF_OK;
}

/* The largest token that a table from before the last boot may have given out. */
static uint64_t highest_token(const struct hf_table *t, int64_t size)
{
    uint64_t highest = t->head->token_floor;
    for (uint32_t s = 0; s < LOCAL_SHARDS; s++)
        if (t->shards[s].token_floor > highest)
            highest = t->shards[s].token_floor;
    for (uint32_t i = 1; i < chunks_of_size(size) * LOCAL_PER_CHUNK; i++) {
        const union hf_cell *c = &t->cells[i];
        if (hf_cell_state(c) == CELL_RESOURCE && c->resource.token > highest)
            highest = c->resource.token;
    }
    return highest;
}

/* ---- Opening ---- */

/* A table that the last boot left behind: emptied, its tokens go on rising. The file lock lets one opener do it; the
 * others find another file under the path and look again. */
static hf_status renew_after_boot(struct hf_table *t, const struct hf_mapping_stat *old, const struct hf_place *here)
{
    if (hf_mapping_lock(t->fd) != 0)
        return hf_why(HF_UNAVAILABLE, "%s: cannot lock the file to empty it after a reboot: %s", t->path,
                      strerror(errno));
    if (!hf_table_in_place(t))
        return HF_OK;
    return make_table(t->path, old->mode, here, highest_token(t, old->size), old);
}

enum outcome { OPENED, AGAIN, REFUSED };

static enum outcome open_existing(struct hf_table *t, mode_t mode, const struct hf_place *here, hf_status *status)
{
    struct hf_mapping_stat st;
    int error = hf_mapping_open(t->path, &t->fd, &st);
    if (error == ENOENT) {
        *status = make_table(t->path, mode, here, 0, NULL);
        return *status == HF_OK ? AGAIN : REFUSED;
    }
    if (error) {
        *status = why_errno(t->path, error);
        return REFUSED;
    }
    t->device = st.device, t->inode = st.inode;
    if (st.size < LOCAL_PAGE) { /* nothing of it may be touched: behind its end there is no memory */
        *status = refuse(t, "not a Holdfast table");
        return REFUSED;
    }
    char *map = hf_mapping_map(t->fd, LOCAL_MAP);
    if (!map) {
        *status =
            hf_why(HF_FULL, "%s: cannot map %zu MiB of address space: %s", t->path, LOCAL_MAP >> 20, strerror(errno));
        return REFUSED;
    }
    map_parts(t, map);
    *status = check_head(t, st.size);
    if (*status != HF_OK)
        return REFUSED;
    if (memcmp(t->head->boot_id, here->boot_id, sizeof here->boot_id) != 0) {
        *status = renew_after_boot(t, &st, here);
        return *status == HF_OK ? AGAIN : REFUSED;
    }
    *status = check_place(t, here);
    return *status == HF_OK ? OPENED : REFUSED;
}

hf_status hf_table_open(struct hf_table *t, const char *path, mode_t mode)
{
    struct hf_place here;
    const char *what;
    int error = hf_place_here(&here, &what);
    if (error)
        return hf_why(HF_UNAVAILABLE, "%s: %s", what, strerror(error));
    memset(t, 0, sizeof *t);
    t->fd = -1;
    if (path && strlen(path) >= sizeof t->path)
        return hf_why(HF_CONFIG, "%.80s...: the path of a table has at most %zu bytes", path, sizeof t->path - 1);
    if (path)
        snprintf(t->path, sizeof t->path, "%s", path);
    else if ((error = hf_mapping_home(t->path, sizeof t->path)) != 0)
        return hf_why(error == EACCES || error == EPERM ? HF_DENIED : HF_UNAVAILABLE, "%s: %s", t->path,
                      error == EPERM ? "is not a directory of mode 0700 that belongs to you" : strerror(error));
    hf_status status = HF_OK;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        enum outcome outcome = open_existing(t, mode, &here, &status);
        if (outcome == OPENED)
            return HF_OK;
        hf_table_close(t);
        if (outcome == REFUSED)
            return status;
    }
    return hf_why(HF_UNAVAILABLE, "%s: the file is replaced again and again", t->path);
}

void hf_table_close(struct hf_table *t)
{
    if (t->map)
        hf_mapping_unmap(t->map, LOCAL_MAP);
    if (t->fd >= 0)
        close(t->fd);
    t->map = NULL;
    t->fd = -1;
}

bool hf_table_in_place(const struct hf_table *t)
{
    return hf_mapping_is(t->path, t->device, t->inode);
}

/* ---- Growing ---- */

/* Makes the file an eighth longer, or by one chunk where that does not fit any more. */
static int extend_file(struct hf_table *t)
{
    uint32_t more = t->state->room / 8 > 16 ? t->state->room / 8 : 16;
    uint32_t most = chunks_of_size((int64_t)LOCAL_MAP) - t->state->room;
    more = more < most ? more : most;
    if (more == 0)
        return ENOSPC;
    int64_t from = LOCAL_CELLS_AT + (int64_t)t->state->room * LOCAL_CHUNK;
    int error = hf_mapping_allocate(t->fd, from, (int64_t)more * LOCAL_CHUNK);
    if (error == ENOSPC && more > 1) {
        more = 1;
        error = hf_mapping_allocate(t->fd, from, LOCAL_CHUNK);
    }
    if (!error)
        t->state->room += more;
    return error;
}

uint32_t hf_table_grow(struct hf_table *t, uint32_t shard, int64_t until)
{
    enum hf_robust_result locked = hf_robust_lock(&t->state->grow, until);
    if (locked == HF_ROBUST_OWNER_DIED) {
        hf_robust_mend(&t->state->grow);
    } else if (locked != HF_ROBUST_LOCKED) {
        hf_why(HF_UNAVAILABLE, "%s: another process does not let go of the table's growth", t->path);
        return 0;
    }
    /* By the file itself: somebody may have died between making it longer and saying so. One that is shorter than it
     * says, or that cannot be looked at, gives out nothing: its next chunk would be somebody's. */
    uint32_t chunk = t->state->chunks, room = chunks_of_size(hf_mapping_size(t->fd)), first = 0;
    int error = room < chunk ? EIO : 0;
    if (!error)
        t->state->room = room;
    if (!error && chunk == room)
        error = extend_file(t);
    if (error) {
        hf_why(HF_FULL, "%s: the lock table cannot grow beyond %u KiB: %s", t->path,
               (unsigned)(LOCAL_CELLS_AT / 1024 + t->state->room * (LOCAL_CHUNK / 1024)), strerror(error));
    } else {
        first = chunk * LOCAL_PER_CHUNK;
        for (uint32_t i = 0; i < LOCAL_PER_CHUNK; i++)
            t->cells[first + i].head.shard = shard;
        atomic_store_explicit(&t->state->chunks, chunk + 1, memory_order_release);
    }
    hf_robust_unlock(&t->state->grow);
    return first;
}
