/* net_fixture.h - one connection of the library in a test: dialled, waited for, read and written.
 */
#pragma once
#include "listen_socket.h"

#include "base/endpoint.h"
#include "net/conn.h"

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

static inline struct endpoint at(const char *host, const char *port)
{
    struct endpoint address = {0};
    snprintf(address.host, sizeof address.host, "%s", host);
    snprintf(address.port, sizeof address.port, "%s", port);
    return address;
}

static inline struct conn *dial(const struct endpoint *to)
{
    struct conn *conn = conn_dial(to);
    assert_non_null(conn);
    return conn;
}

/* Waits until the link has something to do. */
static inline void wait_for(const struct conn *conn)
{
    struct pollfd ready = {.fd = conn_fd(conn), .events = conn_events(conn)};
    if (!conn_ready(conn) && poll(&ready, 1, PATIENCE_MS) != 1)
        fail_msg("nothing happened on the link");
}

static enum conn_state open_conn(struct conn *conn)
{
    while (conn_state(conn) == CONN_OPENING) {
        wait_for(conn);
        conn_continue(conn);
    }
    return conn_state(conn);
}

static inline void assert_up(struct conn *conn)
{
    if (open_conn(conn) != CONN_UP)
        fail_msg("%s", conn_error_text(conn));
}

static inline void assert_failed(struct conn *conn, hf_status status, const char *why)
{
    assert_int_equal(open_conn(conn), CONN_FAILED);
    assert_string_equal(conn_error_text(conn), why);
    assert_int_equal(conn_status(conn), status);
    conn_free(conn);
}

/* Why the link fails, once all was read. */
static inline void assert_ends(struct conn *conn, hf_status status, const char *why)
{
    char bytes[1000];
    size_t got;
    bool more;
    do
        wait_for(conn);
    while (conn_read(conn, bytes, sizeof bytes, &got, &more));
    assert_failed(conn, status, why);
}

static inline void read_exactly(struct conn *conn, char *bytes, size_t size)
{
    for (size_t had = 0, got; had < size; had += got) {
        bool more;
        wait_for(conn);
        conn_flush(conn);
        if (!conn_read(conn, bytes + had, size - had, &got, &more))
            fail_msg("%s", conn_error_text(conn));
    }
}

static inline void assert_hears(struct conn *conn, const char *text)
{
    char bytes[100] = "";
    assert_true(strlen(text) < sizeof bytes);
    read_exactly(conn, bytes, strlen(text));
    assert_string_equal(bytes, text);
}

static inline void say(struct conn *conn, const char *text)
{
    assert_true(conn_send(conn, text, strlen(text)));
    conn_flush(conn);
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
