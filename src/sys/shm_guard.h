/* shm_guard.h - lets a program survive when a file that it has mapped is truncated.
 *
 * Such a file has no memory behind its new end, and the kernel answers an access there with SIGBUS.
 * A handler for the whole program is installed only if the program has none itself. It acts only on
 * faults inside a guarded mapping: it puts private pages of zeros there and sets a flag. Every
 * other SIGBUS gets the default action, as if there were no handler. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Guards a mapping until shm_guard_remove(). *hit is set when a fault was mended. The mapping
 * stays unguarded if the program has a handler of its own. Returns false without memory. */
bool shm_guard_add(char *map, size_t size, _Atomic bool *hit);
void shm_guard_remove(const char *map);
/* Unblocks SIGBUS in a thread that blocks all signals: otherwise a fault would end the program. */
void shm_guard_this_thread(void);
