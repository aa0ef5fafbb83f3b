/* privileges.c - tries what a test is going to do, in a child that leaves no trace. */
#include "privileges.h"

#include "sentence.h"
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

const char *privileges_missing_root(void)
{
    return geteuid() == 0 ? NULL : "needs root";
}

static bool mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/tmp", "tmpfs", 0, "size=64k") == 0;
}

/* In a chroot / is no mount point, so that even root cannot make it private. */
const char *privileges_missing_mounts(void)
{
    static char why[128];
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(mounts() ? 0 : errno);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return "a child that would mount something did not end";
    snprintf(why, sizeof why, "needs root, and / to be a mount point: %s",
             strerror(WEXITSTATUS(status)));
    return WEXITSTATUS(status) ? why : NULL;
}

void privileges_needed(const char *missing)
{
    if (!missing)
        return;
    print_message("# skipped: %s\n", missing);
    skip();
}
