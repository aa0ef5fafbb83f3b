/* text.h - words for people: messages on stderr, names made safe to show, durations, JSON strings, colour. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXIT_USAGE 64
#define EXIT_INTERNAL 70
#define EXIT_LOST 79

/* A copy of foreign text in which nothing can move the cursor, change colours or reorder the line. */
struct shown {
    char text[640];
};

/* Control characters, marks that reorder text, bytes that are not UTF-8 and the backslash become \xNN; what is too long
 * ends in "...". */
struct shown text_shown(const char *text);
struct shown text_shown_bytes(const char *text, size_t len);

/* How many columns a text takes, counted in characters. */
size_t text_columns(const char *text);

/* "0.4 s", "26 s", "4 min 10 s", "3 h 20 min". */
struct shown text_duration(int64_t ms);

/* A moment, given in milliseconds since 1970, as "2026-01-31T23:59:59.123Z". */
struct shown text_time(int64_t wall_ms);

/* One line on stderr that begins with "holdfast: ". */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void json_print_text(FILE *out, const char *text);

/* What `print` prints to stdout, as a string to be freed; NULL after a message when there is no memory for it. */
char *text_printed(void (*print)(const void *arg), const void *arg);

/* May what goes to this descriptor be coloured? */
bool text_may_colour(int fd);

/* Flushes stdout; 0, or 70 after a message when what was printed could not be written. */
int finish_stdout(void);
