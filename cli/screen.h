/* screen.h - a terminal of our own for a while: other screen, no cursor, keys without line end; given back as it was.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct screen {
    bool ours; /* taken and not given back yet */
    bool keys; /* stdin is a terminal, and its settings are kept here */
    struct termios before;
};

void screen_enter(struct screen *screen);

/* Gives it back, if that was not done yet: what is to stay readable is printed after it. */
void screen_leave(struct screen *screen);

/* Columns and lines; what a terminal does not tell is 80 and 24. */
void screen_size(size_t *columns, size_t *lines);
