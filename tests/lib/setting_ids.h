/* setting_ids.h - the ids of all engines' settings, for tests that look at the joined table. */
#pragma once
#include "engines/wire_engine.h"

enum {
#define SETTING SETTING_INDEX
#define SETTING_TEXT SETTING_INDEX
#include "engines/consul/consul_settings.def"
#include "engines/local/local_settings.def"
#include "engines/postgres/postgres_settings.def"
#include "engines/redis/redis_settings.def"
#include "engines/redlock/redlock_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
