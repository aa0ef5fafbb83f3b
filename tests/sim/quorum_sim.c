/* quorum_sim.c - the simulator of a quorum in the world of several servers: the production engine
 * redlock:, with the production claims, above models of five independent Redis servers, under
 * virtual time, with faults drawn from a seed (G35 to G38). wire_sim.h says how to call it.
 *
 * Groups of clients and servers are cut off from each other, servers hang and restart empty, and
 * their clocks differ. redlock_sim.c has what this world lacks: clocks that jump, calls of scripts
 * that are refused, and the order of waiters while servers are slow. */
#include "sim/quorum_world/quorum_events.h"

#include "sim/wire_world/wire_sim.h"
