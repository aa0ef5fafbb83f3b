/* postgres_sim.c - the simulator of a PostgreSQL database: the production engine and claims above
 * pg_session.h, against a model of the server under virtual time, with faults drawn from a seed.
 * wire_sim.h says how to call it.
 *
 * Statements arrive also when their connection was cut; crashes lose what was committed lazily, and
 * failovers what no standby had; commits are confirmed without their standby; a pooler hands on
 * replies of others; rows are locked by other transactions, and the server's clock steps back.
 * Clients stand still, die, and have clocks that run apart. */
#include "sim/postgres_world/postgres_events.h"

#include "sim/wire_world/wire_sim.h"
