/* mailbox.c - the mailbox of each op: replies that have arrived and were not taken out yet.
 *
 * Mailboxes lie in chunks that stay in place until the driver is closed, so a slot that was
 * forgotten can still be looked up. A client may hold very many locks and has few ops in flight. So
 * an op has a mailbox only while a reply may come. For the same reason a mailbox has its spare
 * message only then. */
#include "io_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Messages ---- */

static struct io_message *take_message(struct io *io)
{
    struct io_message *message = io->messages;
    if (!message)
        return malloc(sizeof *message);

    assert(io->messages_kept);
    io->messages = message->next;
    io->messages_kept--;
    return message;
}

static void give_message(struct io *io, struct io_message *message)
{
    if (!message)
        return;

    if (io->messages_kept == IO_MESSAGES_KEPT) {
        free(message);
        return;
    }

    message->next = io->messages;
    io->messages = message;
    io->messages_kept++;
}

/* ---- Making and dropping ---- */

static bool add_chunk(struct io *io)
{
    struct io_mailbox **chunk = realloc(io->chunk, (io->chunks + 1) * sizeof *chunk);
    if (!chunk)
        return false;

    io->chunk = chunk;
    struct io_mailbox *mailboxes = calloc(IO_CHUNK, sizeof *mailboxes);
    if (!mailboxes)
        return false;

    for (uint32_t i = 0; i < IO_CHUNK; i++) {
        mailboxes[i].index = io->chunks * IO_CHUNK + i;
        mailboxes[i].next = i + 1 < IO_CHUNK ? &mailboxes[i + 1] : NULL;
    }

    io->chunk[io->chunks++] = io->free = mailboxes;
    return true;
}

struct io_mailbox *io_mailbox_make(struct io *io, struct engine_op *op)
{
    if (!io->free && !add_chunk(io))
        return NULL;

    struct io_mailbox *mailbox = io->free;
    assert(!mailbox->op);
    io->free = mailbox->next;
    *mailbox = (struct io_mailbox){
        .op = op, .index = mailbox->index, .generation = mailbox->generation + 1};
    op->slot = io_slot_of(mailbox);
    op->seen = 0;
    return mailbox;
}

static void empty(struct io *io, struct io_mailbox *mailbox)
{
    for (; mailbox->count; mailbox->count--) {
        struct io_message *message = mailbox->oldest;
        mailbox->oldest = message->next;
        free(message->text);
        free(message->holder);
        give_message(io, message);
    }

    give_message(io, mailbox->spare);
    free(mailbox->last_text);
    free(mailbox->last_holder);
    mailbox->spare = NULL;
    mailbox->last_text = NULL;
    mailbox->last_holder = NULL;
}

void io_mailbox_drop(struct io *io, struct io_mailbox *mailbox)
{
    assert(mailbox->op && !mailbox->touched && !mailbox->parked);
    empty(io, mailbox);
    mailbox->op->slot = 0;
    mailbox->op = NULL;
    mailbox->next = io->free;
    io->free = mailbox;
}

void io_mailboxes_free(struct io *io)
{
    for (uint32_t i = 0; i < io->chunks; i++) {
        for (uint32_t k = 0; k < IO_CHUNK; k++)
            empty(io, &io->chunk[i][k]);
        free(io->chunk[i]);
    }

    free(io->chunk);
    while (io->messages)
        free(take_message(io));
}

/* ---- Putting in ---- */

bool io_mailbox_reserve(struct io *io, struct io_mailbox *mailbox)
{
    if (!mailbox->spare)
        mailbox->spare = take_message(io);
    return mailbox->spare;
}

/* Returns NULL if the reply has no holder, or without memory: the reply itself is kept. */
static struct reply_holder *copy_holder(const struct reply_holder *holder)
{
    struct reply_holder *copy = holder ? malloc(sizeof *copy) : NULL;
    if (copy)
        *copy = *holder;
    return copy;
}

/* Returns false for a reply that another reply will follow unasked. */
static bool is_final(const struct engine_reply *reply)
{
    return reply->kind != REPLY_NOTIFY && reply->kind != REPLY_QUEUED;
}

/* Returns true if `reply` may be dropped when the newer reply `by` needs room. A notification may
 * always be dropped; a place in the queue may be dropped for a later answer. An answer is never
 * dropped for a notification, because its caller would wait for it for ever. */
static bool is_replaceable(const struct engine_reply *reply, const struct engine_reply *by)
{
    if (by->kind == REPLY_NOTIFY)
        return reply->kind == REPLY_NOTIFY;
    return !is_final(reply);
}

/* Takes out the oldest reply that may be dropped for `by`, or the oldest of all if `by` is an
 * answer. Returns NULL if there is none. */
static struct io_message *take_replaceable(struct io_mailbox *mailbox,
                                           const struct engine_reply *by)
{
    struct io_message **at = &mailbox->oldest;
    while (*at && !is_replaceable(&(*at)->reply, by))
        at = &(*at)->next;
    if (!*at && by->kind != REPLY_NOTIFY)
        at = &mailbox->oldest;

    struct io_message *message = *at;
    if (message) {
        *at = message->next;
        free(message->text);
        free(message->holder);
        mailbox->count--;
    }

    return message;
}

/* Returns NULL if there is no room. That happens only to notifications, because the submit has
 * reserved room for an answer. */
static struct io_message *find_room(struct io *io, struct io_mailbox *mailbox,
                                    const struct engine_reply *reply)
{
    struct io_message *message = NULL;
    if (mailbox->count < IO_MAILBOX_ROOM && io_mailbox_reserve(io, mailbox)) {
        message = mailbox->spare;
        mailbox->spare = NULL;
    }
    return message ? message : take_replaceable(mailbox, reply);
}

void io_mailbox_put(struct io *io, struct io_mailbox *mailbox, const struct engine_reply *reply)
{
    struct io_message *message = find_room(io, mailbox, reply), **end = &mailbox->oldest;
    mailbox->final = is_final(reply);
    mailbox->reply_count++;
    if (!message)
        return;

    /* Without memory the text is lost, but not the reply. */
    message->text = reply->text ? strdup(reply->text) : NULL;
    message->reply = *reply;
    message->reply.text = message->text;
    message->holder = copy_holder(reply->holder);
    message->reply.holder = message->holder;
    message->next = NULL;

    while (*end)
        end = &(*end)->next;
    *end = message;
    mailbox->count++;
    assert(mailbox->count <= IO_MAILBOX_ROOM);
}

/* ---- Taking out ---- */

/* Keeps a spare message if another reply may arrive. */
static void keep_spare(struct io *io, struct io_mailbox *mailbox)
{
    bool is_last = !mailbox->count && mailbox->final && !mailbox->op->connections;
    if (is_last) {
        give_message(io, mailbox->spare);
        mailbox->spare = NULL;
    } else {
        io_mailbox_reserve(io, mailbox);
    }
}

bool io_mailbox_take(struct io *io, struct io_mailbox *mailbox, struct engine_reply *reply)
{
    struct io_message *message = mailbox->oldest;
    assert(!message == !mailbox->count);
    if (message) {
        *reply = message->reply;
        free(mailbox->last_text);
        free(mailbox->last_holder);
        mailbox->last_text = message->text;
        mailbox->last_holder = message->holder;
        mailbox->oldest = message->next;
        mailbox->count--;
        give_message(io, message);
    }

    mailbox->op->seen = mailbox->reply_count - mailbox->count;
    keep_spare(io, mailbox);

    return message;
}

/* The caller may still read the text of the last reply. So a mailbox with such a text stays until
 * the next submit, or until the op is forgotten. */
void io_mailbox_rest(struct io *io, struct io_mailbox *mailbox)
{
    bool replied_all = mailbox->final && !mailbox->due && !mailbox->count && !mailbox->last_text &&
                       !mailbox->last_holder;
    bool unused =
        !mailbox->parked && !mailbox->touched && !mailbox->interest && !mailbox->op->connections;
    if (replied_all && unused)
        io_mailbox_drop(io, mailbox);
}

void io_mailbox_touch(struct io *io, struct io_mailbox *mailbox)
{
    if (mailbox->touched)
        return;

    mailbox->touched = true;
    mailbox->next = io->touched;
    io->touched = mailbox;
}
