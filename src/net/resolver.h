/* resolver.h - resolves a host to its addresses without blocking. A numeric address is parsed at
 * once. A name is resolved by a thread of its own, because getaddrinfo() may block for any time. */
#pragma once
#include <netdb.h>

struct resolver; /* one name being resolved */

/* The address of a numeric host, for freeaddrinfo(). NULL: it is a name, or there is no memory. */
struct addrinfo *resolver_number(const char *host, const char *port);

/* Starts to resolve a name. NULL: no thread, descriptor or memory; errno says which. */
struct resolver *resolver_start(const char *host, const char *port);
int resolver_fd(const struct resolver *resolver); /* readable when the answer is there */

/* Takes the answer: 0 with *found for freeaddrinfo(), or an EAI_ code with NULL. EAI_INPROGRESS:
 * there is none yet. */
int resolver_answer(struct resolver *resolver, struct addrinfo **found);

/* May be called at any time. A thread that still resolves frees everything when it is done. */
void resolver_drop(struct resolver *resolver);
