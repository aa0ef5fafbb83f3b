/* process.h - who we are and who others are: process ids, namespaces, boot, host. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* What must be the same for two processes to share robust futexes and clocks. */
struct hf_place {
    uint8_t boot_id[16];
    uint64_t pid_namespace, time_namespace; /* inode numbers; 0 where the kernel has none */
    char libc[32];
};

/* 0, or an errno with *what naming the thing that could not be read. */
int hf_place_here(struct hf_place *place, const char **what);

/* State letter from /proc/PID/stat: R S D T t Z ...; 0 when there is no such process. */
char hf_process_state(int64_t pid);

/* The process that a thread belongs to; 0 when there is no such thread. */
int64_t hf_process_of_thread(int64_t thread);

const char *hf_host_name(void); /* of this machine; read once */
int64_t hf_process_id(void);
int hf_machine_cpus(void); /* at least 1; whether all are ours to use is not asked */
