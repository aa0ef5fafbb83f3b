# consul.cmake - what the engine needs: jansson, which reads the JSON of the replies and is loaded by json_library.c.
engine_needs_header(jansson.h libjansson-dev)
