/* key_slot.h - the slots of a cluster: each key belongs to one slot, and each slot to one
 * primary.
 *
 * The slot is a checksum of the key's hash tag, the text between the first { and the next }. If
 * there is no such text, or if it is empty, the whole key is summed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_SLOTS = 16384, SLOT_TAG_MAX = 8 };

unsigned redis_slot_of(const char *key, size_t len);
/* Returns true if the key has a hash tag. */
bool redis_slot_has_tag(const char *key, size_t len);
/* Writes a hash tag that lies in that slot: the lowest such number, in hexadecimal digits. */
void redis_slot_tag(unsigned slot, char tag[SLOT_TAG_MAX]);
