# postgres.cmake - what the engine needs: libpq, which owns the connection and is loaded by pg_library.c, and the SQL that is installed in the server.
engine_needs_header(libpq-fe.h libpq-dev)
include(${CMAKE_CURRENT_LIST_DIR}/sql.cmake)
engine_sources(${POSTGRES_SQL_C})
list(APPEND engine_includes ${CMAKE_CURRENT_LIST_DIR})
