/* failover_sim.c - the simulator of servers that replace each other: the production engines
 * redis+sentinel: and redis:, with the production claims, above models of three Redis servers and
 * three sentinels, under virtual time, with faults drawn from a seed (G40 to G43). wire_sim.h says
 * how to call it.
 *
 * Primaries die, hang, are replaced by an operator, come back empty and go on beside their
 * successors; replicas lag; clocks differ; sentinels are cut off; a client and a primary are cut
 * off from all others. */
#include "sim/failover_world/failover_events.h"

#include "sim/wire_world/wire_sim.h"
