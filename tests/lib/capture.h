/* capture.h - keeps what a function writes to stderr, so that a test can read it. */
#pragma once

/* Redirects stderr to a file. */
void capture_stderr(void);
/* Restores stderr. Returns what was written, valid until the next call. Longer texts are cut
 * off. */
const char *captured_stderr(void);
