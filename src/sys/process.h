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

/* Returns the state letter in /proc/PID/stat (R S D T t Z ...); 0: no such process. */
char process_state(int64_t pid);

/* Returns the process that a thread belongs to; 0: no such thread. */
int64_t process_of_thread(int64_t thread);

const char *process_host_name(void); /* Returns the name of this machine, read once. */
int64_t process_id(void);
/* Returns the number of CPUs of the machine, at least 1, whatever the limits of the process. */
int process_cpu_count(void);
