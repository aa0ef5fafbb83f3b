/* descendants.h - kills and reaps all children of this process, adopted ones included, until
 * none is left. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Children that existed before holdfast was exec'ed (a shell may leave some). They are never
 * killed. */
struct spared {
    pid_t pid[64];
    size_t count;
};

/* Makes orphaned descendants children of this process from now on. Returns 0, or -1 and errno. */
int descendants_adopt(void);

/* Notes the children that exist now, as many as the list has room for. */
void descendants_spare(struct spared *spared);

/* Returns true if this process has any child, adopted or its own. */
bool descendants_exist(void);

/* Sends SIGKILL to `group` (0: no group) and to every child except the spared ones, and repeats
 * this for children that are inherited meanwhile, until none is left. It never sleeps: there is
 * one wait for each death. Returns the wait status of the group's leader, which is not SIGKILL
 * if the leader had ended before. */
int descendants_end(pid_t group, const struct spared *spared);
