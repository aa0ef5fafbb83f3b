# symbols.cmake - libholdfast.so exports what packaging/libholdfast.symbols lists, under the version that is said there.
# The list is in the format of Debian's deb-symbols(5), so that one file serves the linker, the package and the tests.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS packaging/libholdfast.symbols)
file(STRINGS packaging/libholdfast.symbols symbol_lines REGEX "^ hf_")
set(version_script "HOLDFAST_0 {\n    global:\n")
foreach(line ${symbol_lines})
    string(REGEX REPLACE "^ (hf_[a-z0-9_]+)@HOLDFAST_0 .*" "        \\1;\n" entry "${line}")
    string(APPEND version_script "${entry}")
endforeach()
string(APPEND version_script "    local:\n        *;\n};\n")
string(REGEX REPLACE " (hf_[a-z0-9_]+)@[^;]*;?" "\\1\n" globals "${symbol_lines}") # libholdfast.a
file(CONFIGURE OUTPUT libholdfast.globals CONTENT "${globals}" @ONLY)
file(CONFIGURE OUTPUT libholdfast.map CONTENT "${version_script}" @ONLY)
target_link_options(holdfast-shared PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/libholdfast.map)
set_property(TARGET holdfast-shared APPEND PROPERTY LINK_DEPENDS ${CMAKE_BINARY_DIR}/libholdfast.map)
