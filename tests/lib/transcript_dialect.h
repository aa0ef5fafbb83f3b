/* transcript_dialect.h - what wire_transcripts.c needs to know of a protocol: how to print what an
 * engine sends, and how to make the bytes that a line of a file stands for. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum {
    TRANSCRIPT_LINE = 4096,
    TRANSCRIPT_BYTES = 2 * TRANSCRIPT_LINE,
    TRANSCRIPT_CONNECTIONS = 32
};

struct dialect {
    /* Forgets what was known of a connection, because it is dialled or has ended. */
    void (*reset)(unsigned connection);
    /* Notes what the engine sent, one EXPECT line for each message. */
    void (*sent)(unsigned connection, const char *bytes, size_t len);
    /* Makes the bytes of a server for a line, whose first word is `step`: SEND, or one of the
     * protocol's own. Returns their number; 0: a library has them, and the engine is told that it
     * may go on; -1: there is no such step; -2: the text makes no sense. */
    long (*make)(const char *step, unsigned connection, const char *text,
                 char bytes[TRANSCRIPT_BYTES]);
};

/* In wire_transcripts.c: */

void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_word(const char *bytes, size_t len);           /* notes it, with \xNN */
size_t unescape(const char *text, size_t len, char *out); /* returns the length */

extern const struct dialect grpc_dialect, http_dialect, jute_dialect, postgres_dialect;
