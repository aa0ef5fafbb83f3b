/* fuzz_protobuf.c - the messages of etcd, read from any bytes: nothing is read beyond the end,
 * every reader ends, and slices lie inside the input. */
#include "engines/etcd/etcd_messages.h"
#include "fuzz/fuzz.h"

/* A read of two keys, a transaction with such a read, a lease, a watch with a deletion. */
const char *const fuzz_seeds[] = {
    "\x0a\x08\x08\x01\x10\x02\x18\x03\x20\x04\x12\x0a\x0a\x01k\x10\x02\x18\x03\x2a\x01v\x20\x01",
    "\x0a\x02\x18\x05\x10\x01\x1a\x0e\x0a\x0c\x12\x0a\x0a\x01k\x10\x02\x18\x03\x2a\x01v",
    "\x0a\x02\x18\x05\x10\x07\x18\x1e",
    "\x0a\x02\x18\x05\x10\x01\x5a\x09\x08\x01\x12\x05\x0a\x01k\x18\x05",
    "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    NULL,
};
unsigned long fuzz_accepted, fuzz_refused;

static void inside(struct slice slice, const char *bytes, size_t len)
{
    MUST(slice.len <= len);
    MUST(!slice.len || (slice.at >= bytes && slice.at + slice.len <= bytes + len));
}

static void read_pairs(struct pb_reader pairs, const char *bytes, size_t len)
{
    struct key_value pair;
    while (message_next_pair(&pairs, &pair)) {
        inside(pair.key, bytes, len);
        inside(pair.value, bytes, len);
    }
}

static void read_message(enum message_kind kind, const char *bytes, size_t len)
{
    struct message m, part;
    if (!message_read(&m, kind, bytes, len)) {
        fuzz_refused++;
        return;
    }
    fuzz_accepted++;
    inside(m.token, bytes, len);
    read_pairs(m.pairs, bytes, len);
    while (message_next_response(&m.responses, &part))
        read_pairs(part.pairs, bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct watch_message watch;
    struct watch_event event;
    for (unsigned kind = MESSAGE_TXN; kind <= MESSAGE_AUTH; kind++)
        read_message((enum message_kind)kind, bytes, size);
    if (message_read_watch(&watch, bytes, size))
        while (message_next_event(&watch.events, &event))
            inside(event.pair.key, bytes, size);
    return 0;
}
