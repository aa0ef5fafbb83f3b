/* cluster_sim.c - the simulator of a cluster: the production engine redis+cluster:, with the
 * production claims, above models of five Redis servers that share the slots, under virtual time,
 * with faults drawn from a seed (G44 to G46). wire_sim.h says how to call it.
 *
 * The slot of the lock moves between two primaries, key by key; primaries die, hang, are cut off
 * and are replaced by their replicas; replicas lag; every node learns of a change some time later,
 * and until then answers by what it believed before.
 *
 * Left out: a failover of a primary whose slots are being moved, which Redis before 8.4 loses. */
#include "sim/cluster_world/cluster_events.h"

#include "sim/wire_world/wire_sim.h"
