/* process.h - facts about this process, other processes and the machine: process ids, namespaces,
 * boot id, host name. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Two processes can share robust futexes and clocks only if all of this is the same. */
struct process_domain {
    uint8_t boot_id[16];
    uint64_t pid_namespace, time_namespace; /* inode numbers; 0 where the kernel has none */
    char libc[32];
};

/* Returns 0, or an errno, with *what naming the file that could not be read. */
int process_domain_read(struct process_domain *place, const char **what);

/* State letter from /proc/PID/stat (R S D T t Z ...); 0: there is no such process. */
char process_state(int64_t pid);

/* The process that a thread belongs to; 0: there is no such thread. */
int64_t process_of_thread(int64_t thread);

const char *process_host_name(void); /* of this machine; read once */
int64_t process_id(void);
int process_cpu_count(void); /* of the machine, at least 1; limits of the process are ignored */
