/* table_file.c - the shared file: creating, checking, mapping and growing it. */
#include "table_file.h"

#include "base/error.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "sys/shm_file.h"
#include "sys/shm_guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_TRIES = 100 };

uint32_t table_layout(void)
{
    static const size_t shape[] = {
        sizeof(struct robust_mutex),
        sizeof(struct table_state),
        sizeof(struct shard),
        sizeof(struct resource),
        sizeof(struct entry),
        sizeof(struct table_client),
        offsetof(struct table_state, ring),
        offsetof(struct resource, name),
        offsetof(struct entry, owner),
        offsetof(struct entry, label),
        offsetof(struct table_client, wake_word),
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

uint64_t table_checksum(const struct table_head *page)
{
    const uint8_t *bytes = (const uint8_t *)page;
    const size_t at = offsetof(struct table_head, checksum);
    uint64_t sum = 14695981039346656037u;

    for (size_t i = 0; i < LOCAL_PAGE; i++) {
        bool skipped = i >= at && i < at + sizeof page->checksum;
        sum = (sum ^ (skipped ? 0 : bytes[i])) * 1099511628211u;
    }

    return sum;
}

static void map_parts(struct table *t, char *map)
{
    assert(map);
    t->map = map;
    t->head = (struct table_head *)(void *)map;
    t->state = (struct table_state *)(void *)(map + LOCAL_STATE_AT);
    t->shards = (struct shard *)(void *)(map + LOCAL_SHARDS_AT);
    t->cells = (union cell *)(void *)(map + LOCAL_CELLS_AT);
}

static uint32_t chunks_of_size(int64_t size)
{
    size = size < (int64_t)LOCAL_MAP ? size : (int64_t)LOCAL_MAP;
    return size < LOCAL_CELLS_AT ? 0 : (uint32_t)((size - LOCAL_CELLS_AT) / LOCAL_CHUNK);
}

uint32_t table_backed(struct table *t, uint32_t chunks)
{
    assert(t->fd >= 0);
    uint32_t has = chunks_of_size(shm_file_size(t->fd));
    atomic_store_explicit(&t->backed, has, memory_order_relaxed);
    if (chunks <= has)
        return chunks;
    table_found_damage(t);
    return has;
}

union cell *cell_beyond(struct table *t, uint32_t index)
{
    uint32_t cells = table_cells(t);
    if (index != 0 && index < cells) {
        atomic_store_explicit(&t->last, cells - 1, memory_order_relaxed);
        return &t->cells[index];
    }

    table_found_damage(t);
    return &t->outside;
}

/* ---- Making a table ---- */

static void write_head(struct table_head *head, const struct process_domain *here,
                       uint64_t token_floor)
{
    memcpy(head->magic, LOCAL_MAGIC, sizeof head->magic);
    head->version = LOCAL_VERSION;
    head->layout = table_layout();
    memcpy(head->boot_id, here->boot_id, sizeof head->boot_id);
    head->pid_namespace = here->pid_namespace;
    head->time_namespace = here->time_namespace;
    memcpy(head->libc, here->libc, sizeof head->libc);
    head->token_floor = token_floor;
    head->checksum = table_checksum(head);
}

static void write_new(struct table *t, const struct process_domain *here, uint64_t token_floor)
{
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++)
        t->shards[s].token_floor = token_floor;

    t->state->room = chunks_of_size(LOCAL_START);
    t->state->chunks = 1; /* chunk 0 belongs to the registry; its cell 0 is never used */
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK; i++)
        t->cells[i].head.shard = LOCAL_REGISTRY;
    t->cells[0].head.state = CELL_RESERVED;
    struct shard *registry = &t->shards[LOCAL_REGISTRY];

    for (uint32_t i = 1; i < LOCAL_PER_CHUNK; i++) {
        t->cells[i].head.next = registry->free.head;
        registry->free.head = i;
        registry->free.count++;
    }

    write_head(t->head, here, token_floor);
}

static hf_status why_errno(const char *path, int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return error_set(HF_DENIED, "%s: %s", path, strerror(error));
    case ELOOP:
        return error_set(HF_DENIED,
                         "%s: is a symbolic link; a lock table must be a file of its own", path);
    case EREMOTE:
        return error_set(
            HF_CONFIG,
            "%s: is on a network file system; locks in shared memory work on one machine only",
            path);
    case EFTYPE_NOT_FILE:
        return error_set(HF_DAMAGED, "%s: is not a regular file; nothing was changed", path);
    default:
        return error_set(HF_UNAVAILABLE, "%s: %s", path, strerror(error));
    }
}

static hf_status why_not_made(const char *path, int error)
{
    hf_status status = HF_UNAVAILABLE;
    if (error == ENOSPC || error == EDQUOT)
        status = HF_FULL;
    else if (error == EACCES || error == EPERM)
        status = HF_DENIED;
    return error_set(status, "%s: cannot make the lock table: %s", path, strerror(error));
}

/* Creates a complete table under a temporary name and then renames it to its path, so that no
 * process ever sees an incomplete one. With `old` the new table replaces the old one and keeps its
 * owner and group. Also returns HF_OK if another process was faster. */
static hf_status make_table(const char *path, mode_t mode, const struct process_domain *here,
                            uint64_t token_floor, const struct shm_file_stat *old)
{
    assert(path && here);
    struct table t = {.fd = -1};
    char temporary[sizeof t.path + 32];
    int error = shm_file_create(path, mode, LOCAL_START, temporary, sizeof temporary, &t.fd);

    if (error == EREMOTE)
        return why_errno(path, error);
    if (error)
        return why_not_made(path, error);

    char *map = shm_file_map(t.fd, LOCAL_START);
    if (map) {
        map_parts(&t, map);
        write_new(&t, here, token_floor);
        shm_file_unmap(map, LOCAL_START);
    } else {
        error = errno;
    }

    if (!error && old)
        error = shm_file_inherit(t.fd, old);
    if (!error)
        error = old ? shm_file_replace(temporary, path) : shm_file_publish(temporary, path);
    shm_file_discard(temporary);
    close(t.fd);

    return error && error != EEXIST ? why_not_made(path, error) : HF_OK;
}

/* ---- Checking a table ---- */

static hf_status refuse(const struct table *t, const char *reason)
{
    return error_set(HF_DAMAGED, "%s: %s; nothing was changed", t->path, reason);
}

static hf_status check_head(const struct table *t, int64_t size)
{
    assert(t->map);
    char reason[160];
    if (size < LOCAL_PAGE || memcmp(t->head->magic, LOCAL_MAGIC, sizeof t->head->magic) != 0)
        return refuse(t, "not a Holdfast table");
    if (t->head->checksum != table_checksum(t->head))
        return refuse(t, "damaged: the checksum of its first page does not fit");
    if (t->head->version != LOCAL_VERSION || t->head->layout != table_layout()) {
        snprintf(reason, sizeof reason,
                 "a Holdfast table of another layout (version %u.%08x, this program has %u.%08x); "
                 "delete it when no program uses it any more",
                 t->head->version, t->head->layout, (unsigned)LOCAL_VERSION, table_layout());
        return refuse(t, reason);
    }

    if (size < LOCAL_START)
        return refuse(t, "damaged: it is shorter than it says");

    /* read before the file's size, because the table may grow meanwhile */
    uint32_t chunks = t->state->chunks;
    if (chunks_of_size(shm_file_size(t->fd)) < chunks)
        return refuse(t, "damaged: it is shorter than it says");

    return HF_OK;
}

/* Refuses a table of another namespace. Robust futexes compare bare thread ids and clocks are per
 * namespace, so the kernel would mark a living holder's mutex dead. */
static hf_status check_place(const struct table *t, const struct process_domain *here)
{
    assert(t->map);
    if (t->head->pid_namespace != here->pid_namespace)
        return refuse(t,
                      "belongs to another pid namespace (container), and is in use there or has a "
                      "detached hold that lasts; give each its own table");
    if (t->head->time_namespace != here->time_namespace)
        return refuse(t, "belongs to another time namespace; give each its own table");
    if (strncmp(t->head->libc, here->libc, sizeof here->libc) != 0) {
        char reason[160];
        snprintf(reason, sizeof reason, "was made with %.31s, this program runs with %.31s",
                 t->head->libc, here->libc);
        return refuse(t, reason);
    }

    return HF_OK;
}

/* Returns an upper bound of the tokens that the old table has granted. */
static uint64_t highest_token(const struct table *t, int64_t size)
{
    uint64_t highest = t->head->token_floor;
    for (uint32_t s = 0; s < LOCAL_SHARDS; s++)
        if (t->shards[s].token_floor > highest)
            highest = t->shards[s].token_floor;
    for (uint32_t i = 1; i < chunks_of_size(size) * LOCAL_PER_CHUNK; i++) {
        const union cell *c = &t->cells[i];
        if (cell_state(c) == CELL_RESOURCE && c->resource.token > highest)
            highest = c->resource.token;
    }

    return highest;
}

/* ---- Opening ---- */

/* Empties a table that was used before the last boot; its tokens continue to rise. The process that
 * has the file lock does this. Other processes then find the new file under the path and start
 * over. */
static hf_status renew_after_boot(struct table *t, const struct shm_file_stat *old,
                                  const struct process_domain *here)
{
    assert(t->fd >= 0 && old);
    if (shm_file_lock(t->fd) != 0)
        return error_set(HF_UNAVAILABLE, "%s: cannot lock the file to empty it after a reboot: %s",
                         t->path, strerror(errno));
    if (!table_in_place(t))
        return HF_OK;
    return make_table(t->path, old->mode, here, highest_token(t, old->size), old);
}

/* Returns true if the table has a detached hold, which lasts until its end without a process. */
static bool has_detached_hold(struct table *t)
{
    nanos now = clock_boot();
    for (uint32_t i = 1; i < table_cells(t); i++) {
        const union cell *c = &t->cells[i];
        bool is_detached = cell_state(c) == CELL_HELD && c->entry.client == 0;
        if (is_detached && c->entry.end > now)
            return true;
    }
    return false;
}

/* Returns true if the table belongs to another pid namespace in which no process uses it any more:
 * a container has ended and left its volume behind. Then the table is emptied as after a reboot.
 * This process keeps the file lock, so that no other opens the table meanwhile. */
static bool is_abandoned(struct table *t, const struct process_domain *here)
{
    bool is_foreign = t->head->pid_namespace != here->pid_namespace;
    bool has_our_clock = t->head->time_namespace == here->time_namespace;
    if (!is_foreign || !has_our_clock)
        return false;

    return shm_file_lock_unused(t->fd) == 0 && table_in_place(t) && !has_detached_hold(t);
}

/* Takes a shared lock on the file. Every process that has the table open keeps this lock, which
 * shows others that the table is in use. Returns false if the table is being replaced. */
static bool mark_used(struct table *t)
{
    if (shm_file_mark_used(t->fd) == EWOULDBLOCK) {
        clock_sleep_until(clock_boot() + NANOS_OF_MS(1));
        return false;
    }
    return table_in_place(t);
}

/* Lists the mutexes of the first pages, so that the kernel marks them if this process dies. */
static hf_status start_owner(struct table *t)
{
    assert(t->map && !t->owner.id);
    int error = robust_owner_start(&t->owner, t->fd, LOCAL_CELLS_AT / LOCAL_PAGE);
    if (error)
        return error_set(error == ENOSYS ? HF_UNAVAILABLE : HF_NO_MEMORY,
                         "%s: cannot start the thread that owns the mutexes: %s", t->path,
                         strerror(error));

    robust_owner_cover(&t->owner, LOCAL_STATE_AT + offsetof(struct table_state, grow));
    for (size_t s = 0; s <= LOCAL_SHARDS; s++)
        robust_owner_cover(&t->owner, LOCAL_SHARDS_AT + s * sizeof(struct shard) +
                                          offsetof(struct shard, mutex));
    return HF_OK;
}

enum outcome { OPENED, AGAIN, REFUSED };

static enum outcome open_existing(struct table *t, mode_t mode, const struct process_domain *here,
                                  hf_status *status)
{
    assert(t->fd < 0);
    struct shm_file_stat st;
    int error = shm_file_open(t->path, &t->fd, &st);

    if (error == ENOENT) {
        *status = make_table(t->path, mode, here, 0, NULL);
        return *status == HF_OK ? AGAIN : REFUSED;
    }

    if (error) {
        *status = why_errno(t->path, error);
        return REFUSED;
    }

    t->device = st.device, t->inode = st.inode;
    if (st.size <
        LOCAL_PAGE) { /* Do not touch a shorter file: there is no memory behind its end. */
        *status = refuse(t, "not a Holdfast table");
        return REFUSED;
    }

    char *map = shm_file_map(t->fd, LOCAL_MAP);
    if (!map) {
        *status = error_set(HF_FULL, "%s: cannot map %zu MiB of address space: %s", t->path,
                            LOCAL_MAP >> 20, strerror(errno));
        return REFUSED;
    }

    map_parts(t, map);
    if (!shm_guard_add(map, LOCAL_MAP, &t->damaged)) {
        *status = error_set(HF_NO_MEMORY, "%s: no memory to guard the mapping", t->path);
        return REFUSED;
    }
    *status = check_head(t, st.size);
    if (*status != HF_OK)
        return REFUSED;
    if (memcmp(t->head->boot_id, here->boot_id, sizeof here->boot_id) != 0) {
        *status = renew_after_boot(t, &st, here);
        return *status == HF_OK ? AGAIN : REFUSED;
    }

    if (is_abandoned(t, here)) {
        *status = make_table(t->path, st.mode, here, highest_token(t, st.size), &st);
        return *status == HF_OK ? AGAIN : REFUSED;
    }
    *status = check_place(t, here);
    if (*status != HF_OK)
        return REFUSED;

    if (!mark_used(t))
        return AGAIN;
    *status = start_owner(t);
    return *status == HF_OK ? OPENED : REFUSED;
}

hf_status table_open(struct table *t, const char *path, mode_t mode)
{
    struct process_domain here;
    const char *what;
    int error = process_domain_read(&here, &what);

    if (error)
        return error_set(HF_UNAVAILABLE, "%s: %s", what, strerror(error));

    memset(t, 0, sizeof *t);
    t->fd = -1;
    if (path && strlen(path) >= sizeof t->path)
        return error_set(HF_CONFIG, "%.80s...: the path of a table has at most %zu bytes", path,
                         sizeof t->path - 1);
    if (path)
        snprintf(t->path, sizeof t->path, "%s", path);
    else if ((error = shm_file_home(t->path, sizeof t->path)) != 0)
        return error_set(error == EACCES || error == EPERM ? HF_DENIED : HF_UNAVAILABLE, "%s: %s",
                         t->path,
                         error == EPERM ? "is not a directory of mode 0700 that belongs to you"
                                        : strerror(error));

    hf_status status = HF_OK;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        enum outcome outcome = open_existing(t, mode, &here, &status);
        if (outcome == OPENED)
            return HF_OK;
        table_close(t);
        if (outcome == REFUSED)
            return status;
    }

    return error_set(HF_UNAVAILABLE, "%s: the file was replaced at every try", t->path);
}

void table_close(struct table *t)
{
    robust_owner_stop(&t->owner);
    if (t->map) {
        shm_guard_remove(t->map);
        shm_file_unmap(t->map, LOCAL_MAP);
    }
    if (t->fd >= 0)
        close(t->fd);
    t->map = NULL;
    t->fd = -1;
}

bool table_in_place(const struct table *t)
{
    return shm_file_is(t->path, t->device, t->inode);
}

/* ---- Growing ---- */

/* Makes the file longer by an eighth, or by one chunk if an eighth does not fit. */
static int extend_file(struct table *t, uint32_t room)
{
    assert(t->fd >= 0 && room <= chunks_of_size((int64_t)LOCAL_MAP));
    uint32_t more = room / 8 > 16 ? room / 8 : 16;
    uint32_t most = chunks_of_size((int64_t)LOCAL_MAP) - room;
    more = more < most ? more : most;
    if (more == 0)
        return ENOSPC;

    int64_t from = LOCAL_CELLS_AT + (int64_t)room * LOCAL_CHUNK;
    int error = shm_file_allocate(t->fd, from, (int64_t)more * LOCAL_CHUNK);

    if (error == ENOSPC && more > 1) {
        more = 1;
        error = shm_file_allocate(t->fd, from, LOCAL_CHUNK);
    }

    if (!error)
        t->state->room = room + more;
    return error;
}

uint32_t table_grow(struct table *t, uint32_t shard, int64_t until)
{
    assert(shard <= LOCAL_REGISTRY);
    enum robust_mutex_result locked = robust_mutex_lock(&t->owner, &t->state->grow, until);
    if (locked == ROBUST_MUTEX_OWNER_DIED) {
        robust_mutex_make_consistent(&t->state->grow);
    } else if (locked != ROBUST_MUTEX_LOCKED) {
        error_set(HF_UNAVAILABLE, "%s: another process keeps the mutex for growing the table",
                  t->path);
        return 0;
    }

    /* Believe the file's size, not the state page: a process may have died after it grew the file
     * and before it updated the page. If the file is shorter than the state page says, or its size
     * cannot be read, grow nothing: the next chunk would overlap one in use. */
    uint32_t chunk = t->state->chunks, room = chunks_of_size(shm_file_size(t->fd)), first = 0;
    int error = room < chunk || chunk == 0 ? EIO : 0;

    if (!error)
        t->state->room = room;
    if (!error && chunk == room)
        error = extend_file(t, room);
    if (error) {
        error_set(HF_FULL, "%s: the lock table cannot grow beyond %u KiB: %s", t->path,
                  (unsigned)(LOCAL_CELLS_AT / 1024 + room * (LOCAL_CHUNK / 1024)), strerror(error));
    } else {
        first = chunk * LOCAL_PER_CHUNK;
        for (uint32_t i = 0; i < LOCAL_PER_CHUNK; i++)
            t->cells[first + i].head.shard = shard;
        atomic_store_explicit(&t->state->chunks, chunk + 1, memory_order_release);
    }

    robust_mutex_unlock(&t->owner, &t->state->grow);
    return first;
}
