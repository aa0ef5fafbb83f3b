/* descendants.h - kills and reaps the children of this process, those that it adopted included, until none is left. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Children that were there before us (a shell that exec'ed holdfast may leave some): they are nobody's to kill. */
struct spared {
    pid_t pid[64];
    size_t count;
};

/* From now on orphaned descendants become children of this process. 0, or -1 and errno. */
int descendants_adopt(void);

/* Notes the children that exist now. Those beyond the room of the list are not noted. */
void descendants_spare(struct spared *spared);

/* Has this process any child, adopted or its own? */
bool descendants_exist(void);

/* SIGKILL to `group` (0: none) and to every child but the spared ones, again and again as dying parents leave us their
 * children, until there is none. Returns when all are gone: no sleep, one wait for each death. */
void descendants_end(pid_t group, const struct spared *spared);
