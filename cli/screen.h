/* screen.h - prepares the terminal for a live view (alternate screen, no cursor; keys are read at
 * once, without Enter and without echo) and restores it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct screen {
    bool ours; /* the terminal is prepared, and was not restored yet */
    bool keys; /* stdin is a terminal, whose settings are in `before` */
    struct termios before;
};

void screen_enter(struct screen *screen);

/* Restores the terminal, unless that is done already. Output that is to stay readable is printed
 * after it. */
void screen_leave(struct screen *screen);

/* Returns columns and lines; 80 and 24 if the terminal does not tell. */
void screen_size(size_t *columns, size_t *lines);
