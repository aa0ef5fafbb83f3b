/* forkmark.h - tells whether a handle was made by this process: a page that the kernel wipes in a forked child. One
 * load to check, where getpid() would be a system call. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct hf_forkmark {
    volatile uint32_t *page;
};

int hf_forkmark_set(struct hf_forkmark *mark); /* 0 or an errno */
void hf_forkmark_clear(struct hf_forkmark *mark);

static inline bool hf_forkmark_ours(const struct hf_forkmark *mark)
{
    return *mark->page != 0;
}
