/* screen.c - prepares the terminal for a live view and restores it. */
#include "screen.h"
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

void screen_enter(struct screen *screen)
{
    screen->keys = tcgetattr(STDIN_FILENO, &screen->before) == 0;
    if (screen->keys) {
        struct termios raw = screen->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }

    screen->ours = true;
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
}

void screen_leave(struct screen *screen)
{
    if (!screen->ours)
        return;
    screen->ours = false;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (screen->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
}

void screen_size(size_t *columns, size_t *lines)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    *columns = known ? size.ws_col : 80;
    *lines = known ? size.ws_row : 24;
}
