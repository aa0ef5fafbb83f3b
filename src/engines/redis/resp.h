/* resp.h - RESP, the protocol of Redis.
 *
 * Commands are written into a buffer. Replies are read by hiredis' reader into objects of our own,
 * within limits: a hostile reply ends in an error, and takes about two megabytes at most. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Writing commands ---- */

/* A buffer that commands are written into, one after the other; it keeps its memory. */
struct resp_command {
    char *bytes;
    size_t len, room;
    bool failed; /* an allocation failed; the command is incomplete */
};

/* Begins a command of `words` words, in an empty buffer. */
void resp_command_begin(struct resp_command *c, unsigned words);
void resp_command_word(struct resp_command *c, const char *text, size_t len);
void resp_command_text(struct resp_command *c, const char *text);
/* Adds one word that is made of two parts. */
void resp_command_joined(struct resp_command *c, const char *first, size_t first_len,
                         const char *second, size_t second_len);
void resp_command_char(struct resp_command *c, char letter);
void resp_command_number(struct resp_command *c, int64_t number);
/* Adds words that are in wire format already. */
void resp_command_words(struct resp_command *c, const char *bytes, size_t len);

/* For code that writes words in wire format itself. resp_command_room() returns where it may write
 * `most` bytes, or NULL without memory; resp_command_end() says where the written words end. */
enum { RESP_FRAME_MAX = 25 }; /* bytes around a word */
char *resp_command_grow(struct resp_command *c, size_t more);
static inline char *resp_command_room(struct resp_command *c, size_t more)
{
    return c->room - c->len >= more ? c->bytes + c->len : resp_command_grow(c, more);
}
static inline void resp_command_end(struct resp_command *c, const char *end)
{
    c->len = (size_t)(end - c->bytes);
}
/* Writes a word; returns its end. */
char *resp_put_word(char *to, const char *text, size_t len);

/* A few numbers that many commands share, formatted once and then copied. */
enum { RESP_WORDS_MAX = 3 };
struct resp_words {
    char bytes[128]; /* room for RESP_WORDS_MAX numbers and one more */
    size_t len;
};
struct resp_words resp_words_of(const int64_t *numbers, unsigned count);
void resp_command_add(struct resp_command *c, const struct resp_words *words);

/* Writes the digits of a number; returns their end. */
char *resp_put_number(char *to, uint64_t number);
void resp_command_free(struct resp_command *c);

/* ---- Replies ---- */

enum resp_type { RESP_NIL, RESP_TEXT, RESP_STATUS, RESP_ERROR, RESP_NUMBER, RESP_LIST };

struct resp_reply {
    enum resp_type type;
    int64_t number;
    const char *text; /* ends with NUL; TEXT may contain further NULs */
    size_t len;       /* TEXT: bytes; LIST: items */
    struct resp_reply *first, *last, *next;
};

struct resp_reader; /* Reads replies; keeps the start of one that is not complete. */

struct resp_reader *resp_reader_open(void); /* Returns NULL without memory. */
void resp_reader_close(struct resp_reader *r);
/* Takes the bytes, which must stay where they are until resp_reader_next() has no reply left.
 * Returns false if there is no memory, or if a reply has more than `most` bytes; then the
 * connection is useless. */
bool resp_reader_feed(struct resp_reader *r, const char *bytes, size_t len, size_t most);
/* Returns the next whole reply, valid until the next call. NULL: none yet, or *error says what
 * is wrong with the bytes. */
const struct resp_reply *resp_reader_next(struct resp_reader *r, const char **error);

/* Returns the i-th item of a list; NULL: no such item. */
const struct resp_reply *resp_item(const struct resp_reply *list, size_t i);
/* Returns a number that is not negative, or the value of a text that is such a number in decimal;
 * otherwise -1. */
int64_t resp_count(const struct resp_reply *resp);
