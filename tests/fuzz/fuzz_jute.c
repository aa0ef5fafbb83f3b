/* fuzz_jute.c - the messages of ZooKeeper, read from any bytes: nothing is read beyond the end,
 * every reader ends, parts lie inside the input; and the same frames come whole or in pieces. */
#include "engines/zookeeper/zk_messages.h"
#include "fuzz/fuzz.h"

#include <string.h>

/* A reply to a greeting, one with an error, an event, a list of two names, a length that is too
 * large, and a list that claims more names than it has. */
const char *const fuzz_seeds[] = {
    "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1ppppppppppppppp",
    "\1\1\1\1\1\1\1\1\1\1\1\1\377\377\377\233",
    "\377\377\377\377\377\377\377\377\377\377\377\377\1\1\1\1",
    "hf1.e1.1.0123456789abcdef0123456789abcdef-lock-0000000012",
    "\177\377\377\377",
    NULL,
};
unsigned long fuzz_accepted, fuzz_refused;

static void inside(struct jute_bytes part, const char *bytes, size_t len)
{
    MUST(part.len <= len);
    MUST(!part.len || (part.at >= bytes && part.at + part.len <= bytes + len));
}

static struct jute_reader reader_of(const char *bytes, size_t len)
{
    return (struct jute_reader){.at = bytes, .end = bytes + len};
}

static void read_replies(const char *bytes, size_t len)
{
    struct jute_reader r = reader_of(bytes, len);
    struct zk_connected connected;
    struct zk_stat stat;
    struct jute_bytes part;
    if (zk_read_connected(&r, &connected))
        inside(connected.password, bytes, len);
    r = reader_of(bytes, len);
    if (zk_read_created(&r, &part, &stat))
        inside(part, bytes, len);
    r = reader_of(bytes, len);
    struct zk_event event;
    if (zk_read_event(&r, &event))
        inside(event.path, bytes, len);
}

static void read_names(const char *bytes, size_t len)
{
    struct jute_reader r = reader_of(bytes, len);
    struct jute_bytes name;
    uint32_t count, read = 0;
    if (!zk_read_children(&r, &count)) {
        fuzz_refused++;
        return;
    }
    MUST(count <= len / 4);
    while (read < count && zk_next_child(&r, &name)) {
        inside(name, bytes, len);
        read++;
    }
    fuzz_accepted++;
}

/* Number of whole frames, and whether a bad one ended them. */
static size_t frames_of(const char *bytes, size_t len, size_t piece, bool *bad)
{
    struct jute_inbox inbox = {0};
    struct jute_reader frame;
    size_t frames = 0;
    enum jute_frame found = JUTE_FRAME_NONE;
    for (size_t at = 0; at < len && found != JUTE_FRAME_BAD; at += piece) {
        size_t part = len - at < piece ? len - at : piece;
        MUST(jute_inbox_add(&inbox, bytes + at, part));
        while ((found = jute_inbox_next(&inbox, &frame)) == JUTE_FRAME_WHOLE)
            frames++;
    }
    *bad = found == JUTE_FRAME_BAD;
    jute_inbox_free(&inbox);
    return frames;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct zk_header header;
    struct jute_reader r = reader_of(bytes, size);
    bool whole_bad, pieces_bad;
    if (zk_read_header(&r, &header))
        MUST((size_t)(r.end - r.at) == size - 16);
    read_replies(bytes, size);
    read_names(bytes, size);
    MUST(frames_of(bytes, size, size + 1, &whole_bad) == frames_of(bytes, size, 3, &pieces_bad));
    MUST(whole_bad == pieces_bad);
    return 0;
}
