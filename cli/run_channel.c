/* run_channel.c - the messages between front and guard: a socket pair that keeps their bounds. */
#include "run_channel.h"
#include <errno.h>
#include <sys/socket.h>

int channel_open(int ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
}

void channel_send(int end, enum channel_message word, int value)
{
    int message[2] = {(int)word, value};
    (void)!send(end, message, sizeof message, MSG_NOSIGNAL);
}

enum channel_message channel_read(int end, int *value)
{
    int message[2];
    ssize_t got = recv(end, message, sizeof message, 0);

    if (got == (ssize_t)sizeof message) {
        *value = message[1];
        return (enum channel_message)message[0];
    }

    return got < 0 && (errno == EAGAIN || errno == EINTR) ? CHANNEL_NOTHING : CHANNEL_CLOSED;
}
