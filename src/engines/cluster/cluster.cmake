# cluster.cmake - the primaries of a Redis Cluster, each behind the engine for one server.
engine_needs(redis)
engine_sees(engines/redis/cluster_member.h engines/redis/followed_server.h engines/redis/key_slot.h
    engines/redis/redis_member.h engines/redis/resp.h)
