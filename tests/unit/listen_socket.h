/* listen_socket.h - a place to be called at: a listening socket of the test's own. */
#pragma once
#include "lib/sentence.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

/* On 127.0.0.1, with a port that nobody else has. */
static inline int listen_anywhere(char port[8])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 512), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(port, 8, "%u", ntohs(address.sin_port));
    return fd;
}
