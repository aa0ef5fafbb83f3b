#!/usr/bin/env bash
# core_is_pure.sh - what the rooms of src/ call, read from their object files: core calls nothing but memory functions
# and base, and clock, entropy, shared memory, futex and processes are reached through sys alone. And core names no engine.
. "$(dirname "$0")/../lib/tap.sh"

objects() {
    find "$BUILD/CMakeFiles/room-$1.dir" -name '*.o'
}

# calls ROOM: the symbols that the objects of a room leave to others, one a line.
calls() {
    local files
    mapfile -t files < <(objects "$1")
    nm -u "${files[@]}" | awk 'NF == 2 { print $2 }' | sort -u
}

# is_pure ROOM: the room, together with the objects of base that it pulls in, needs nothing but memory functions.
is_pure() {
    local own base allowed='mem(cpy|set|cmp|move|chr)|strlen|strcmp|__stack_chk_fail|__assert_fail'
    allowed+='|_GLOBAL_OFFSET_TABLE_'
    mapfile -t own < <(objects "$1")
    mapfile -t base < <(objects base)
    rm -f "$SCRATCH/base.a"
    ar rc "$SCRATCH/base.a" "${base[@]}" && ld -r -o "$SCRATCH/$1.o" "${own[@]}" "$SCRATCH/base.a" || return 2
    ! nm -u "$SCRATCH/$1.o" | awk '{ print $2 }' | grep -vxE "$allowed"
}

# own_symbols: what sys itself defines, which every room may call.
own_symbols() {
    local files
    mapfile -t files < <(objects sys)
    nm --defined-only "${files[@]}" | awk 'NF == 3 { print $3 }' | sort -u
}

# leaves_the_machine_to_sys ROOM: prints what a room calls although it is sys's to call.
leaves_the_machine_to_sys() {
    local machine='clock_|gettimeofday$|time$|nanosleep$|usleep$|sleep$|timerfd_|getrandom$|getentropy$|rand'
    machine+='|mmap|munmap$|shm_|posix_fallocate|ftruncate|syscall$|fork$|vfork$|execv|posix_spawn|waitpid$|prctl$'
    machine+='|socket$|connect$|bind$|listen$|accept'
    ! calls "$1" | grep -vxF "$(own_symbols)" | grep -E "^($machine)"
}

# names_no_engine FOLDER: prints the lines that name an engine, or a thing that only some engines have.
names_no_engine() {
    ! grep -rnwiE 'redis|valkey|redlock|sentinel|postgres|etcd|consul|zookeeper|quorum|replicas?|engines/[a-z]+/' "$ROOT/$1"
}

ok "core names no engine, no quorum and no replica" names_no_engine src/core
fails "the same look at engines/redlock finds them there" names_no_engine src/engines/redlock
ok "the objects of core were built" test -n "$(objects core)"
ok "core calls neither clock, malloc, I/O nor threads, and nothing of base that does" is_pure core
fails "the same look at sys finds that it is not pure" is_pure sys
for room in base local engines client api; do
    ok "the room $room leaves clock, entropy, memory maps, processes and sockets to sys" leaves_the_machine_to_sys $room
done
fails "the same look at sys finds them there" leaves_the_machine_to_sys sys
done_testing
