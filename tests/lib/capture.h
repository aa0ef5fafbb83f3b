/* capture.h - keeps what a function writes to stderr, so that a test can read it. */
#pragma once

/* From here on stderr goes to a file. */
void capture_stderr(void);
/* Ends that; returns what was written, valid until the next call. Longer texts are cut off. */
const char *captured_stderr(void);
