/* net_ends.h - one connection of the library in a test: dialled, waited for, read and written. */
#pragma once
#include "listener.h"

#include "base/address.h"
#include "net/link.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 10000

/* ---- A folder for what the tests put on disk ---- */

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/net-ends-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- Our end ---- */

static inline struct hf_address at(const char *host, const char *port)
{
    struct hf_address address = {0};
    snprintf(address.host, sizeof address.host, "%s", host);
    snprintf(address.port, sizeof address.port, "%s", port);
    return address;
}

static inline struct hf_link *dial(const struct hf_address *to)
{
    struct hf_link *link = hf_link_dial(to, 0);
    assert_non_null(link);
    return link;
}

/* Waits until the link has something to do. */
static inline void wait_for(const struct hf_link *link)
{
    struct pollfd ready = {.fd = hf_link_fd(link), .events = hf_link_events(link)};
    if (!hf_link_ready(link) && poll(&ready, 1, PATIENCE_MS) != 1)
        fail_msg("nothing happened on the link");
}

static enum hf_link_state open_link(struct hf_link *link)
{
    while (hf_link_state(link) == HF_LINK_OPENING) {
        wait_for(link);
        hf_link_go_on(link);
    }
    return hf_link_state(link);
}

static inline void assert_up(struct hf_link *link)
{
    if (open_link(link) != HF_LINK_UP)
        fail_msg("%s", hf_link_why(link));
}

static inline void assert_failed(struct hf_link *link, hf_status status, const char *why)
{
    assert_int_equal(open_link(link), HF_LINK_FAILED);
    assert_string_equal(hf_link_why(link), why);
    assert_int_equal(hf_link_status(link), status);
    hf_link_free(link);
}

/* Why the link fails, once all was read. */
static inline void assert_ends(struct hf_link *link, hf_status status, const char *why)
{
    char bytes[1000];
    size_t got;
    bool more;
    do
        wait_for(link);
    while (hf_link_read(link, bytes, sizeof bytes, &got, &more));
    assert_failed(link, status, why);
}

static inline void read_exactly(struct hf_link *link, char *bytes, size_t size)
{
    for (size_t had = 0, got; had < size; had += got) {
        bool more;
        wait_for(link);
        hf_link_flush(link);
        if (!hf_link_read(link, bytes + had, size - had, &got, &more))
            fail_msg("%s", hf_link_why(link));
    }
}

static inline void assert_hears(struct hf_link *link, const char *text)
{
    char bytes[100] = "";
    assert_true(strlen(text) < sizeof bytes);
    read_exactly(link, bytes, strlen(text));
    assert_string_equal(bytes, text);
}

static inline void say(struct hf_link *link, const char *text)
{
    assert_true(hf_link_send(link, text, strlen(text)));
    hf_link_flush(link);
}

static inline int accept_one(int listener)
{
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static inline char *many_bytes(size_t size)
{
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    return bytes;
}
