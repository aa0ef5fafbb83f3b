/* resp.h - RESP, the protocol of Redis: commands are written into a buffer, replies are read by hiredis' reader into
 * objects of our own, within limits: a hostile reply costs an error and never more than about two megabytes. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Commands ---- */

/* A buffer that commands are written into, one after the other; it keeps its memory. */
struct hf_command {
    char *bytes;
    size_t len, room;
    bool failed; /* no memory: what it holds is not whole */
};

void hf_command_begin(struct hf_command *c, unsigned words); /* begins one of that many words, in an empty buffer */
void hf_command_word(struct hf_command *c, const char *text, size_t len);
void hf_command_text(struct hf_command *c, const char *text);
void hf_command_letter(struct hf_command *c, char letter);
void hf_command_number(struct hf_command *c, int64_t number);
void hf_command_words(struct hf_command *c, const char *bytes, size_t len); /* as they go to the wire */

/* For whoever writes words himself, as they go to the wire: where so many bytes may be written, NULL: no memory. Behind
 * the last of them it has an end. */
enum { HF_FRAME_MOST = 25 }; /* bytes around a word */
char *hf_command_grow(struct hf_command *c, size_t more);
static inline char *hf_command_room(struct hf_command *c, size_t more)
{
    return c->room - c->len >= more ? c->bytes + c->len : hf_command_grow(c, more);
}
static inline void hf_command_end(struct hf_command *c, const char *end)
{
    c->len = (size_t)(end - c->bytes);
}
char *hf_put_word(char *to, const char *text, size_t len); /* where it ends */

/* A few numbers that many commands have: written once, and copied. */
enum { HF_WORDS_MOST = 3 };
struct hf_words {
    char bytes[128]; /* one more number than the most would fit */
    size_t len;
};
struct hf_words hf_words_of(const int64_t *numbers, unsigned count);
void hf_command_add(struct hf_command *c, const struct hf_words *words);

char *hf_put_number(char *to, uint64_t number); /* its digits; where they end */
void hf_command_free(struct hf_command *c);

/* ---- Replies ---- */

enum hf_reply_type { HF_REPLY_NIL, HF_REPLY_TEXT, HF_REPLY_STATUS, HF_REPLY_ERROR, HF_REPLY_NUMBER, HF_REPLY_LIST };

struct hf_reply {
    enum hf_reply_type type;
    int64_t number;
    const char *text; /* NUL-terminated; TEXT may contain further NULs */
    size_t len;       /* of the text; of a list the number of its items */
    struct hf_reply *first, *last, *next;
};

struct hf_replies; /* a reader, with what it has read so far */

struct hf_replies *hf_replies_open(void); /* NULL: no memory */
void hf_replies_close(struct hf_replies *r);
/* True: taken, and the bytes stay where they are until there is no reply left. False: no memory, or more bytes than the
 * `most` that a reply may have; the connection is of no use any more. */
bool hf_replies_feed(struct hf_replies *r, const char *bytes, size_t len, size_t most);
/* The next whole reply, valid until the next call; NULL: none yet, or *error says what is wrong with the bytes. */
const struct hf_reply *hf_replies_next(struct hf_replies *r, const char **error);

/* The i-th item of a list; NULL: there is none. */
const struct hf_reply *hf_reply_item(const struct hf_reply *list, size_t i);
/* A number, or a text that is a decimal number from 0 on; -1: neither. */
int64_t hf_reply_count(const struct hf_reply *reply);
