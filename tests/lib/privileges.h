/* privileges.h - what a test needs from the machine beyond the rights of an ordinary user. */
#pragma once

/* Each returns NULL if this process can do it, or why it cannot. */
const char *privileges_missing_root(void);
const char *privileges_missing_mounts(void); /* a mount namespace with a file system of its own */

/* First line of a test: skips it, with the reason, if something is missing. */
void privileges_needed(const char *missing);
