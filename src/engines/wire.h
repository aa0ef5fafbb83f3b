/* wire.h - the door inside an engine that talks to servers: bytes and time go in, bytes and news come out.
 *
 * What is behind it does no I/O, starts no thread, reads no clock and never blocks, so the same code runs on sockets
 * (engines/wire/), on a transcript and in the simulator. A *line* is one connection, numbered from 0. Nothing here is
 * called by two threads at once.
 *
 * The engine answers each submit with exactly one tell, inside or later. Behind the answer QUEUED others may follow
 * unasked: GRANTED or HINT. */
#pragma once
#include "base/address.h"
#include "core/message.h"

struct hf_settings;
struct hf_url;

#define HF_WIRE_LINES 32 /* at most, and the bits of hf_ask.lines */

/* All that such an engine may touch. None of these calls back. */
struct hf_wire_host {
    void *ctx;
    /* Opens a line that is down. line_up() or line_down() follows, later. */
    void (*dial)(void *ctx, unsigned line, const struct hf_address *to);
    /* All or nothing goes into the line's buffer. False: no memory; the line is as good as down. */
    bool (*send)(void *ctx, unsigned line, const void *bytes, size_t len);
    /* Closes a line; no line_down() follows. What was not yet sent is lost. */
    void (*hang_up)(void *ctx, unsigned line);
    void (*tell)(void *ctx, struct hf_ask *ask, const struct hf_news *news);
    void (*row)(void *ctx, struct hf_ask *ask, const struct hf_row *row); /* LIST: one row; ask and text for the call */
    void (*stand)(void *ctx, struct hf_ask *ask, const struct hf_standing *standing); /* LIST of HF_SEE_SERVERS: one */
    void (*find)(void *ctx, struct hf_ask *ask, const struct hf_finding *finding);    /* EXAMINE: one finding */
    void (*recheck)(void *ctx); /* holds may have been lost without a word: check each */
    uint32_t (*random)(void *ctx);
};

struct hf_wire_type {
    /* Reads URL and settings; does not connect. On failure *self is NULL and hf_why_text() says why. */
    hf_status (*open)(void **self, const struct hf_url *url, const struct hf_settings *settings,
                      const struct hf_wire_host *host);
    /* Does what ask->verb says; keeps the pointer until forget(). ask->lines are the lines by which news of it may come
     * now: up to date after every submit and tell. */
    void (*submit)(void *self, struct hf_ask *ask, hf_nanos now);
    void (*forget)(void *self, struct hf_ask *ask);
    void (*line_up)(void *self, unsigned line, hf_nanos now);
    /* The engine has seen all of the bytes; it hangs up when they make no sense. */
    void (*line_bytes)(void *self, unsigned line, const char *bytes, size_t len, hf_nanos now);
    /* The line could not be opened, or is closed. `status`: HF_UNAVAILABLE, or HF_CONFIG for what no retry heals. */
    void (*line_down)(void *self, unsigned line, hf_status status, const char *why, hf_nanos now);
    /* Lines on which answers are due that no ask stands for (a release that nobody waits for): the background thread
     * reads them. */
    uint32_t (*lines)(void *self);
    /* Does what is due. Returns when it wants to be called again: HF_NEVER if nothing is planned. May be called early.
     * submit() and the line functions may bring that time forward: ask again after them. */
    hf_nanos (*tick)(void *self, hf_nanos now);
    void (*close)(void *self); /* hangs up; forgets every ask */
};
