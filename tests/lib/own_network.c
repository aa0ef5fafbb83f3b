/* own_network.c - a network namespace with a chain of nftables for what comes in. */
#include "own_network.h"

#include "sentence.h"

#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

bool own_network_nft(const char *words)
{
    char command[500];
    snprintf(command, sizeof command, "PATH=$PATH:/usr/sbin:/sbin nft '%s' >/dev/null 2>&1", words);
    return system(command) == 0;
}

static bool raise_loopback(void)
{
    struct ifreq loopback = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &loopback) == 0;
    loopback.ifr_flags |= IFF_UP;
    done = done && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
    close(fd);
    return done;
}

static bool write_to(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

/* As root; otherwise as the root of a world of users with nobody else in it. */
static bool enter(void)
{
    char user[32], group[32];
    snprintf(user, sizeof user, "0 %u 1", getuid());
    snprintf(group, sizeof group, "0 %u 1", getgid());
    if (unshare(CLONE_NEWNET) == 0)
        return true;
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_to("/proc/self/setgroups", "deny") &&
           write_to("/proc/self/uid_map", user) && write_to("/proc/self/gid_map", group);
}

const char *own_network_enter(void)
{
    if (!enter())
        return "no network namespace can be made here";
    if (!raise_loopback())
        return "the loopback of a new network cannot be raised";
    if (!own_network_nft("add table inet holdfast") ||
        !own_network_nft("add chain inet holdfast in { type filter hook input priority 0; }"))
        return "nft is not there, or its rules cannot be made here";
    return NULL;
}

bool own_network_drop(const char *match)
{
    char words[400];
    int len = snprintf(words, sizeof words, "add rule inet holdfast in %s counter drop", match);
    return len < (int)sizeof words && own_network_nft(words);
}

unsigned long own_network_lost(void)
{
    char line[512];
    unsigned long lost = 0;
    FILE *list = popen("PATH=$PATH:/usr/sbin:/sbin nft list chain inet holdfast in", "r");
    assert_non_null(list);
    while (fgets(line, sizeof line, list)) {
        const char *packets = strstr(line, "counter packets ");
        lost += packets ? strtoul(packets + 16, NULL, 10) : 0;
    }
    assert_int_equal(pclose(list), 0);
    return lost;
}

void own_network_heal(void)
{
    unsigned long lost = own_network_lost();
    print_message("# %lu packets were lost\n", lost);
    assert_true(lost > 0);
    assert_true(own_network_nft("flush chain inet holdfast in"));
}
