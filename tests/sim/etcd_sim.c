/* etcd_sim.c - the simulator of etcd: the production engine and claims above http2.h, against a
 * model of etcd under virtual time, with faults drawn from a seed (G47, G48). wire_sim.h says how
 * to call it.
 *
 * Calls overtake each other, come late, and arrive after their connection was cut; members follow a
 * leader that was replaced and acknowledge keepalives for it; the cluster ends live leases; clients
 * stand still, die, and have clocks that run apart. */
#include "sim/etcd_world/etcd_events.h"

#include "sim/wire_world/wire_sim.h"
