/* own_network.h - a network of the test's own with rules of nftables: a loopback that nobody else
 * sees, on which packets get lost. */
#pragma once
#include <stdbool.h>

/* Puts this process into a network of its own, before it starts servers and threads. Returns NULL,
 * or why there is none. */
const char *own_network_enter(void);
/* Adds a rule for packets that come in, as "ip saddr 127.0.0.2": they are dropped and counted. */
bool own_network_drop(const char *match);
/* Runs nft with these words. */
bool own_network_nft(const char *words);
/* Number of packets that met a rule since the last heal. */
unsigned long own_network_lost(void);
/* Ends all rules. The test fails if no packet met one. */
void own_network_heal(void);
