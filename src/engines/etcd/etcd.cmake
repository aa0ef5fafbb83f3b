# etcd.cmake - what the engine needs: nghttp2, which frames HTTP/2 and does no I/O.
engine_needs_library(nghttp2 nghttp2/nghttp2.h libnghttp2-dev)
