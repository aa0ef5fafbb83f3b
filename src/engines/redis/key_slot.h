/* key_slot.h - the slots of a cluster: each key belongs to one of them, and each slot to one
 * primary.
 *
 * The slot of a key is a checksum of its hash tag, the text between the first { and the next }. If
 * there is no such text, or nothing in it, the whole key counts. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_SLOTS = 16384, SLOT_TAG_MAX = 8 };

unsigned redis_slot_of(const char *key, size_t len);
/* Whether the key has a hash tag. */
bool redis_slot_has_tag(const char *key, size_t len);
/* A hash tag in that slot: the lowest number, in hexadecimal digits, that lies there. */
void redis_slot_tag(unsigned slot, char tag[SLOT_TAG_MAX]);
