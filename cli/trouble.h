/* trouble.h - the order of names in which a person wants to see them: what may need help stands on top. */
#pragma once
#include "rows.h"

/* Sorts rows of several names: the name whose hold has the least of its ttl left comes first, then the one with most
 * waiters, then byte order. Rows of one name stay together and in their order. False when memory is out: a message was
 * printed. */
bool trouble_first(struct rows *rows);
