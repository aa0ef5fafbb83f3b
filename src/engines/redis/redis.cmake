# redis.cmake - what the engine needs: hiredis, which reads replies, and the scripts that run inside the server.
engine_needs_library(hiredis hiredis/hiredis.h libhiredis-dev)
include(${CMAKE_CURRENT_LIST_DIR}/scripts.cmake)
engine_sources(${REDIS_SCRIPTS_C})
list(APPEND engine_includes ${CMAKE_CURRENT_LIST_DIR})
