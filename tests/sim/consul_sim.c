/* consul_sim.c - the simulator of Consul: the production engine and claims, with every byte of its
 * requests and replies, against a model of three agents under virtual time, with faults drawn from
 * a seed (G47, G48). wire_sim.h says how to call it.
 *
 * Leaders change, and agents go on following one that was replaced: it answers reads from its old
 * data and acknowledges renewals. Writes are answered by an error and carried out, or are not. The
 * leader ends sessions between one and two ttl after their last renewal, and sometimes live ones.
 * Another program takes .lock. Clients stand still, die, and have clocks that run apart. */
#include "sim/consul_world/consul_events.h"

#include "sim/wire_world/wire_sim.h"
