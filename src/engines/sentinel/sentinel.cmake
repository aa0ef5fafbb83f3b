# sentinel.cmake - the engine follows one Redis server after the other.
engine_needs(redis)
engine_sees(engines/redis/followed_server.h engines/redis/redis_member.h engines/redis/resp.h)
