/* member.h - one server of a quorum, as engines/redlock uses it: hf_wire_redis with these differences. */
#pragma once
#include "engines/wire.h"

extern const struct hf_wire_type hf_wire_redis;
enum { HF_MEMBER_LINES = 3 };

/* It hands nothing over; a release tells those who listen (HF_V_LISTEN). Before the first submit. */
void hf_quorum_member_join(void *redis);
/* Since when the server runs, on our clock, as it said when the connection was made; HF_NEVER: it did not say. */
hf_nanos hf_quorum_member_up_since(const void *redis);
const char *hf_quorum_member_where(const void *redis);  /* host:port */
const char *hf_quorum_member_run_id(const void *redis); /* of the server's process; "": it did not say */
/* What was last submitted waits for the connection: the next submit takes its place, and one answer comes for both. */
bool hf_quorum_member_is_unsent(const struct hf_ask *ask);
