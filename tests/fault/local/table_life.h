/* table_life.h - what programs do with a table while somebody damages it. */
#pragma once
#include "table_fixture.h"

enum { SLOWEST_MS = 4000 };

static inline uint64_t draw(unsigned long *from)
{
    *from = *from * 6364136223846793005u + 1442695040888963407u;
    return *from >> 33;
}

struct life {
    hf_client *client[2];
    hf_lease *held[16], *waiting[4];
};

static inline void check_row(void *arg, const struct hf_row *row)
{
    *(size_t *)arg += strlen(row->name) + strlen(row->label) + strlen(row->host);
}

static inline void ignore_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)arg;
    REQUIRE(strcmp(hf_status_name(outcome), "UNKNOWN") != 0);
}

static inline void make_name(char name[300], uint64_t number)
{
    int len = snprintf(name, 300, "name-%d-", (int)number);
    if (number % 3 == 0) /* in several cells */
        memset(name + len, 'x', 280), name[len + 280] = 0;
}

#define expect_status(status, from) expect_status_at(status, from, __LINE__)
static inline void expect_status_at(hf_status status, int64_t from, int line)
{
    REQUIRE(strcmp(hf_status_name(status), "UNKNOWN") != 0);
    REQUIRE(status != HF_INTERNAL);
    if (now_ms() - from >= SLOWEST_MS)
        fprintf(stderr, "line %d: a call took %lld ms\n", line, (long long)(now_ms() - from));
    REQUIRE(now_ms() - from < SLOWEST_MS);
}

static inline void acquire_one(struct life *l, unsigned long *random, hf_lease **lease)
{
    char name[300];
    struct hf_request want = {
        .size = sizeof want, .name = name, .ttl_ms = 1000, .label = "a label"};
    make_name(name, draw(random) % 24);
    want.kind = draw(random) % 4 ? HF_EXCLUSIVE : HF_SEMAPHORE;
    want.capacity = want.kind == HF_SEMAPHORE ? 3 : 0;
    want.flags = draw(random) % 3 == 0 ? HF_DETACHED : draw(random) % 2 ? HF_AUTO_RENEW : 0;
    want.wait_ms = draw(random) % 4 ? 0 : 5;
    int64_t from = now_ms();
    hf_lease_free(*lease);
    *lease = NULL;
    expect_status(hf_acquire(l->client[draw(random) % 2], &want, lease), from);
}

static inline void start_one(struct life *l, unsigned long *random, hf_lease **lease)
{
    char name[300];
    struct hf_request want = {.size = sizeof want, .name = name, .ttl_ms = 1000, .wait_ms = 50};
    make_name(name, draw(random) % 24);
    int64_t from = now_ms();
    hf_lease_free(*lease);
    *lease = NULL;
    expect_status(hf_acquire_start(l->client[draw(random) % 2], &want, ignore_outcome, NULL, lease),
                  from);
}

static inline void operate(struct life *l, unsigned long *random)
{
    int64_t from = now_ms();
    size_t length = 0;
    hf_lease **lease = &l->held[draw(random) % 16];
    switch (draw(random) % 8) {
    case 0:
        if (*lease)
            expect_status(hf_release(*lease), from);
        break;
    case 1:
        if (*lease)
            expect_status(hf_extend(*lease, 2000), from);
        break;
    case 2:
        expect_status(hf_list(l->client[draw(random) % 2], NULL, check_row, &length), from);
        break;
    case 3:
    case 4:
        start_one(l, random, &l->waiting[draw(random) % 4]);
        break;
    default:
        acquire_one(l, random, lease);
    }
}
