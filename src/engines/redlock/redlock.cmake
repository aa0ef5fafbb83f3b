# redlock.cmake - a quorum of Redis servers, each behind the engine for one of them.
engine_needs(redis)
engine_sees(engines/redis/quorum_member.h engines/redis/redis_member.h)
