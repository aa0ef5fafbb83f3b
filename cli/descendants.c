/* descendants.c - finds children through /proc and ends them all.
 *
 * Why this ends: this process is a subreaper. It inherits the children of a dying descendant
 * before it is told of that death. All children get SIGKILL before each wait, so each wait
 * returns; then the list of children is read again. */
#include "descendants.h"
#include "output.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void child_fn(void *arg, pid_t child);

struct kill_round {
    const struct spared *spared;
    size_t sent;
};

int descendants_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Calls fn for each pid in /proc/self/task/TID/children. Returns false if the kernel does not
 * offer that file. */
static bool each_child_of_thread(const char *thread, child_fn *fn, void *arg)
{
    char path[sizeof "/proc/self/task//children" + 256];
    int pid;

    snprintf(path, sizeof path, "/proc/self/task/%s/children", thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT && access("/proc/thread-self/children", R_OK) == 0;
    while (fscanf(file, "%d", &pid) == 1)
        fn(arg, pid);

    fclose(file);
    return true;
}

/* Returns the parent of a process by /proc/PID/stat, or -1. The parent is the fourth field,
 * after a name in parentheses. */
static pid_t parent_of(const char *process)
{
    char path[sizeof "/proc//stat" + 256], text[512];

    snprintf(path, sizeof path, "/proc/%s/stat", process);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    const char *name_end = strrchr(text, ')');
    int parent;
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : -1;
}

/* Calls `visit` for the numeric entries of a folder of /proc until it returns false. Returns
 * false in that case, and if there is no folder. */
static bool each_entry(const char *folder,
                       bool (*visit)(const char *entry, child_fn *fn, void *arg), child_fn *fn,
                       void *arg)
{
    DIR *dir = opendir(folder);

    if (!dir)
        return false;
    bool going = true;
    for (struct dirent *entry; going && (entry = readdir(dir));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            going = visit(entry->d_name, fn, arg);

    closedir(dir);
    return going;
}

static bool visit_process(const char *process, child_fn *fn, void *arg)
{
    if (parent_of(process) == getpid())
        fn(arg, (pid_t)atoi(process));
    return true;
}

static void each_child(child_fn *fn, void *arg)
{
    if (!each_entry("/proc/self/task", each_child_of_thread, fn, arg))
        each_entry("/proc", visit_process, fn, arg);
}

static void note_spared(void *arg, pid_t child)
{
    struct spared *spared = arg;
    if (spared->count < sizeof spared->pid / sizeof spared->pid[0])
        spared->pid[spared->count++] = child;
}

void descendants_spare(struct spared *spared)
{
    spared->count = 0;
    each_child(note_spared, spared);
}

bool descendants_exist(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void kill_child(void *arg, pid_t child)
{
    struct kill_round *round = arg;

    for (size_t i = 0; round->spared && i < round->spared->count; i++)
        if (round->spared->pid[i] == child)
            return;

    round->sent++;
    if (kill(child, SIGKILL) != 0 && errno != ESRCH)
        complain("cannot kill process %d: %s; waiting for its end", (int)child, strerror(errno));
}

int descendants_end(pid_t group, const struct spared *spared)
{
    bool group_alive = group > 0;
    int status, leader = SIGKILL; /* wait status of a process that SIGKILL ended */

    for (;;) {
        struct kill_round round = {.spared = spared};
        if (group_alive)
            kill(-group, SIGKILL);
        each_child(kill_child, &round);
        bool only_spared = round.sent == 0 && spared && spared->count > 0;
        if (only_spared)
            return leader;
        pid_t pid = waitpid(-1, &status, 0);
        while (pid > 0) {
            /* Once the leader is reaped and the last member has ended, the kernel may give the
             * group's number to another group. */
            if (pid == group) {
                group_alive = false;
                leader = status;
            }
            pid = waitpid(-1, &status, WNOHANG);
        }
        if (pid < 0 && errno == ECHILD)
            return leader;
    }
}
