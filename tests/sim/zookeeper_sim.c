/* zookeeper_sim.c - the simulator of a ZooKeeper ensemble: the production engine and claims,
 * against a model of three servers under virtual time, with faults drawn from a seed. wire_sim.h
 * says how to call it.
 *
 * Servers lag behind their leader in either direction, are cut off from it and go on answering
 * pings and reads, are deposed, restarted and elected; the leader ends sessions by the reports of
 * its followers; sessions move from server to server while requests of the old connection are in
 * flight; sequence numbers wrap, and containers are collected. Clients stand still, die, and have
 * clocks that run apart. */
#include "sim/zookeeper_world/zookeeper_events.h"

#include "sim/wire_world/wire_sim.h"
