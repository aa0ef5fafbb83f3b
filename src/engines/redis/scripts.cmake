# scripts.cmake - makes a C file of the library in scripts/. holdfast.lua names its parts in lines
# "-- include PART.lua", each of which is replaced by that file. Then comments and empty lines are
# left out, and nothing else happens to the text (tests/lint/lua.sh compares the compiled code). So a
# server keeps a third less, and a comment can be reworded without a new version of the library.
# What differs between the ways to load it is two lines at its head (scripts.h).
set(dir ${CMAKE_CURRENT_LIST_DIR}/scripts)
set(parts name_index straight counter hold_notes holds waiters admit acquire acquire_several release extend convert operator inspect
    places index_verbs acl_check verbs)

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${dir}/holdfast.lua)
file(READ ${dir}/holdfast.lua body)
foreach(part ${parts})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${dir}/${part}.lua)
    file(READ ${dir}/${part}.lua text)
    string(FIND "${body}" "-- include ${part}.lua\n" at)
    if(at LESS 0)
        message(FATAL_ERROR "holdfast.lua does not include ${part}.lua")
    endif()
    string(REPLACE "-- include ${part}.lua\n" "${text}" body "${body}")
endforeach()
set(commented "${body}")
string(REGEX REPLACE "(^|\n) *--[^\n]*" "" body "${body}")
string(REGEX REPLACE " +-- [^\n]*" "" body "${body}")
string(REGEX REPLACE "\n\n+" "\n" body "${body}")
string(REGEX REPLACE "^\n" "" body "${body}")

# The version of the library is the digest of its text: equal names mean equal texts.
string(SHA1 digest "${body}")
string(SUBSTRING ${digest} 0 8 version)
set(head_LIBRARY "#!lua name=holdfast_${version}\nlocal VERSION = '${version}'\n")
set(head_CLAIMING "#!lua\nlocal VERSION\n")
set(head_KEEPING "#!lua flags=allow-oom\nlocal VERSION\n")
set(head_READING "#!lua flags=no-writes,allow-stale\nlocal VERSION\n")

function(as_c_string text out)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
    set(${out} "\"${text}\"" PARENT_SCOPE)
endfunction()

as_c_string("${body}" c)
set(out "/* Made from scripts/ by scripts.cmake. */\n#include \"scripts.h\"\n\n")
string(APPEND out "const char redis_script_body[] =\n    ${c};\n")
string(APPEND out "const size_t redis_script_body_len = sizeof redis_script_body - 1;\n\n")
string(APPEND out "const char redis_library_name[] = \"holdfast_${version}\";\n\n")

string(APPEND out "const struct script_text redis_script_texts[SCRIPT_TEXTS] = {\n")
foreach(way LIBRARY CLAIMING KEEPING READING)
    string(SHA1 sha "${head_${way}}${body}")
    as_c_string("${head_${way}}" c)
    string(APPEND out "    [SCRIPT_${way}] = {\"${sha}\", ${c}},\n")
endforeach()
string(APPEND out "};\n\n")

string(APPEND out "const struct script_verb redis_script_verbs[SCRIPT_VERBS] = {\n")
foreach(verb acquire:CLAIMING acquire_several:CLAIMING extend:KEEPING release:KEEPING convert:KEEPING break:KEEPING
        resize:CLAIMING inspect:READING rights:READING quorum_acquire:CLAIMING
        quorum_release:KEEPING quorum_inspect:READING names:KEEPING index:KEEPING)
    string(REPLACE ":" ";" pair ${verb})
    list(GET pair 0 name)
    list(GET pair 1 way)
    string(TOUPPER ${name} id)
    set(function holdfast_${version}_${name})
    string(LENGTH ${function} len)
    string(LENGTH ${name} name_len)
    string(SHA1 sha "${head_${way}}${body}")
    string(APPEND out "    [SCRIPT_${id}] = {\"${name}\", SCRIPT_${way},\n"
        "        SCRIPT_WORDS(\"$5\\r\\nFCALL\\r\\n$${len}\\r\\n${function}\\r\\n$1\\r\\n\"),\n"
        "        SCRIPT_WORDS(\"$7\\r\\nEVALSHA\\r\\n$40\\r\\n${sha}\\r\\n$1\\r\\n\"),\n"
        "        SCRIPT_WORDS(\"$${name_len}\\r\\n${name}\\r\\n\")},\n")
endforeach()
string(APPEND out "};\n")
set(REDIS_SCRIPTS_C ${CMAKE_BINARY_DIR}/redis_scripts.c)
file(CONFIGURE OUTPUT ${REDIS_SCRIPTS_C} CONTENT "${out}" @ONLY)

# Each finished text as a file, and the library with its comments, for tests/lint/lua.sh.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/lua/commented.lua CONTENT "${head_LIBRARY}${commented}" @ONLY)
foreach(way LIBRARY CLAIMING KEEPING READING)
    string(TOLOWER ${way} name)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/lua/${name}.lua CONTENT "${head_${way}}${body}" @ONLY)
endforeach()
