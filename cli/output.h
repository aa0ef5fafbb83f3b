/* output.h - output: messages on stderr, foreign text made safe, durations, JSON texts, colour. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXIT_USAGE 64
#define EXIT_INTERNAL 70
#define EXIT_LOST 79
#define EXIT_DEADLOCK 80

/* A copy of a foreign text, changed so that it cannot move the cursor, change colours or reorder
 * the line. */
struct shown {
    char text[640];
};

/* Control characters, marks that reorder text, bytes that are not UTF-8 and the backslash become
 * \xNN. A text that is too long ends in "...". */
struct shown output_shown(const char *text);
struct shown text_shown_bytes(const char *text, size_t len);

/* Returns the width of a text in characters. */
size_t text_columns(const char *text);

/* Returns "0.4 s", "26 s", "4 min 10 s", "3 h 20 min". */
struct shown text_duration(int64_t ms);

/* Returns a moment, given in milliseconds since 1970, as "2026-01-31T23:59:59.123Z". */
struct shown text_time(int64_t wall_ms);

/* Prints one line on stderr that begins with "holdfast: ". */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Prints a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void json_print_text(FILE *out, const char *text);

/* Prints a token as a JSON string of digits, because not every language keeps such numbers exact;
 * null if it is 0. */
void json_print_token(FILE *out, uint64_t token);

/* Returns the text that `print` prints to stdout, to be freed by the caller; NULL after a
 * message if memory is out. */
char *text_printed(void (*print)(const void *arg), const void *arg);

/* Returns true if output to this descriptor may be coloured. */
bool text_may_colour(int fd);

/* Flushes stdout. Returns 0, or 70 after a message if some output could not be written. */
int finish_stdout(void);
