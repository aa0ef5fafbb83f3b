# engines.cmake - which engines are built: those of engines.def whose libraries are there, or those that HF_ENGINES names.
#
# The folder of an engine is a room. Its NAME.cmake, if there is one, says what the engine needs besides:
#
#     engine_needs_library(hiredis hiredis/hiredis.h libhiredis-dev)   a library, one of its headers, the Debian package of both
#     engine_needs_header(libpq-fe.h libpq-dev)       the header of a library that the engine loads when it is first used
#     engine_needs(redis)                             another engine
#     engine_sees(engines/redis/quorum_member.h)      headers of src/ besides those that every engine on a wire sees
#     engine_sources(FILE...)                         sources that the build makes
set(HF_ENGINES "" CACHE STRING "engines to build, separated by commas, e.g. local,redis; default: all whose libraries are there")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/engines/engines.def)
string(REPLACE "," ";" wanted_engines "${HF_ENGINES}")

macro(engine_needs_library library header package)
    find_library(HF_LIBRARY_${library} ${library})
    find_path(HF_HEADER_${library} ${header})
    if(NOT HF_LIBRARY_${library} OR NOT HF_HEADER_${library})
        set(engine_lacks "lib${library} was not found (Debian: ${package})")
    endif()
    list(APPEND engine_libraries ${HF_LIBRARY_${library}})
    list(APPEND engine_includes ${HF_HEADER_${library}})
endmacro()

macro(engine_needs_header header package)
    find_path(HF_HEADER_${header} ${header} PATH_SUFFIXES postgresql)
    if(NOT HF_HEADER_${header})
        set(engine_lacks "${header} was not found (Debian: ${package})")
    endif()
    list(APPEND engine_includes ${HF_HEADER_${header}})
endmacro()

macro(engine_needs other)
    if(NOT ${other} IN_LIST BUILT_ENGINES)
        set(engine_lacks "it needs the engine ${other}, which is left out")
    endif()
endmacro()

macro(engine_sees)
    list(APPEND engine_sees ${ARGN})
endmacro()

macro(engine_sources)
    list(APPEND engine_sources ${ARGN})
endmacro()

# engine(FOLDER NAME): a room, or a line that says why there is none.
macro(engine folder name)
    set(engine_lacks "")
    set(engine_libraries "")
    set(engine_includes "")
    set(engine_sources "")
    set(engine_sees ${WIRE_ENGINE_SEES})
    set(engine_dir ${folder}/${name})
    include(${folder}/${name}/${name}.cmake OPTIONAL)
    if(HF_ENGINES AND NOT ${name} IN_LIST wanted_engines)
        set(engine_lacks "it is not in HF_ENGINES")
    elseif(HF_ENGINES AND engine_lacks)
        message(FATAL_ERROR "HF_ENGINES asks for ${name}: ${engine_lacks}")
    endif()
    if(engine_lacks)
        message(STATUS "The engine ${name} is left out: ${engine_lacks}")
        string(APPEND built_engines "ENGINE_LEFT_OUT(\"${name}\", \"${engine_lacks}\")\n")
    else()
        room(${name} DIR ${engine_dir} SEES ${engine_sees})
        target_sources(room-${name} PRIVATE ${engine_sources})
        target_include_directories(room-${name} PRIVATE ${engine_includes})
        list(APPEND BUILT_ENGINES ${name})
        list(APPEND ENGINE_LIBRARIES ${engine_libraries})
        string(APPEND built_engines "ENGINE(${name}_engine, \"${name}\")\n")
    endif()
endmacro()

# engines_of(FOLDER LIST): the engines that FOLDER/LIST names.
macro(engines_of folder list)
    file(STRINGS ${folder}/${list} engine_lines REGEX "^ENGINE\\(")
    foreach(line ${engine_lines})
        string(REGEX REPLACE "^ENGINE\\(([a-z]+)_engine, .*" "\\1" name "${line}")
        engine(${folder} ${name})
    endforeach()
endmacro()

set(built_engines "/* built_engines.def - made by engines.cmake: what was built, and what was left out and why. */\n")
engines_of(src/engines engines.def)
if(HF_TESTS AND NOT HF_ENGINES)
    engines_of(tests/engines test_engines.def) # the example of docs/adding-an-engine.md
endif()
foreach(name ${wanted_engines})
    if(NOT name IN_LIST BUILT_ENGINES)
        message(FATAL_ERROR "HF_ENGINES names ${name}: there is no such engine")
    endif()
endforeach()
file(CONFIGURE OUTPUT generated/built_engines.def CONTENT "${built_engines}" @ONLY)
