/* text_table.c - measures the columns of a table and prints it. */
#include "text_table.h"
#include <string.h>
#include <unistd.h>

#define NARROWEST_FIRST 12

static size_t measure(const struct text_table *table, size_t column)
{
    size_t width = strlen(table->titles[column]);

    for (size_t row = 0; row < table->rows; row++) {
        size_t columns = text_columns(table->cell(table->data, row, column).text);
        if (columns > width)
            width = columns;
    }
    return width;
}

/* Narrows the first column so that a line fits into the terminal, but leaves at least
 * NARROWEST_FIRST columns of it. */
static void narrow_first(const struct text_table *table, size_t *widths)
{
    size_t all = 0;
    for (size_t c = 0; c < table->columns; c++)
        all += widths[c] + (c > 0 ? 2 : 0);

    bool fits = table->width == 0 || all <= table->width;
    if (fits || widths[0] <= NARROWEST_FIRST)
        return;
    size_t excess = all - table->width, spare = widths[0] - NARROWEST_FIRST;
    widths[0] -= excess < spare ? excess : spare;
}

/* Returns the place of the column `columns` in a text of UTF-8. */
static char *column_at(char *text, size_t columns)
{
    size_t begun = 0;
    for (; *text; text++) {
        bool begins = ((unsigned char)*text & 0xc0) != 0x80;
        if (begins && begun++ == columns)
            break;
    }
    return text;
}

/* Shortens a text that is wider than its column, with "~" in the middle: long names often differ at
 * their end only, as tenant/a/job-1 and tenant/a/job-2 do. */
static void cut(char *text, size_t width)
{
    size_t all = text_columns(text), kept_behind = width / 2;
    if (all <= width)
        return;

    char *gap = column_at(text, width - kept_behind - 1);
    const char *rest = column_at(text, all - kept_behind);
    *gap++ = '~';
    memmove(gap, rest, strlen(rest) + 1);
}

/* The last column is not padded, so that no line ends with blanks. */
static void print_cell(const struct text_table *table, const char *text, size_t column,
                       size_t width)
{
    if (column == table->columns - 1)
        printf("%s\n", text);
    else
        printf("%s%*s", text, (int)(width - text_columns(text) + 2), "");
}

void text_table_print(const struct text_table *table)
{
    size_t widths[16];
    bool colour = text_may_colour(STDOUT_FILENO);

    if (table->rows == 0)
        return;

    for (size_t c = 0; c < table->columns; c++)
        widths[c] = measure(table, c);
    narrow_first(table, widths);

    fputs(colour ? "\033[1m" : "", stdout);
    for (size_t c = 0; c < table->columns; c++)
        print_cell(table, table->titles[c], c, widths[c]);

    for (size_t row = 0; row < table->rows; row++) {
        bool dim = table->is_dim && table->is_dim(table->data, row);
        if (colour)
            fputs(dim ? "\033[0;2m" : "\033[0m", stdout);
        for (size_t c = 0; c < table->columns; c++) {
            struct shown shown = table->cell(table->data, row, c);
            if (c == 0)
                cut(shown.text, widths[0]);
            print_cell(table, shown.text, c, widths[c]);
        }
    }

    fputs(colour ? "\033[0m" : "", stdout);
}
