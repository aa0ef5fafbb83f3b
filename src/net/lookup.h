/* lookup.h - from a host's name to its addresses, without making anybody wait: a number is read at once, a name is
 * looked up by a thread of its own, because getaddrinfo() may take as long as it likes. */
#pragma once
#include <netdb.h>

struct hf_lookup; /* one look-up under way */

/* The addresses of a host that is written as a number; NULL: it is a name, or there is no memory. For
 * freeaddrinfo(). */
struct addrinfo *hf_lookup_number(const char *host, const char *port);

/* Begins to look up a name. NULL: no thread, descriptor or memory for it; errno says which. */
struct hf_lookup *hf_lookup_start(const char *host, const char *port);
int hf_lookup_fd(const struct hf_lookup *lookup); /* becomes readable when the answer is there */

/* Fetches the answer once it is there: 0 with *found for freeaddrinfo(), or an EAI_ code with NULL. EAI_INPROGRESS: not
 * yet. */
int hf_lookup_answer(struct hf_lookup *lookup, struct addrinfo **found);

/* At any time. A look-up that is still under way frees itself later. */
void hf_lookup_drop(struct hf_lookup *lookup);
