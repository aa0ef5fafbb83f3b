# local.cmake - the engine has no connections: it sees neither the inner door nor the kit.
set(engine_sees ${DOOR} core sys base)
