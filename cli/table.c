/* table.c - measures the columns of a table and prints it. */
#include "table.h"
#include <string.h>
#include <unistd.h>

static size_t measure(const struct table *table, size_t column)
{
    size_t width = strlen(table->titles[column]);
    for (size_t row = 0; row < table->rows; row++) {
        size_t columns = text_columns(table->cell(table->data, row, column).text);
        if (columns > width)
            width = columns;
    }
    return width;
}

/* The last column is not filled up: no line ends with blanks. */
static void print_cell(const struct table *table, const char *text, size_t column, size_t width)
{
    if (column == table->columns - 1)
        printf("%s\n", text);
    else
        printf("%s%*s", text, (int)(width - text_columns(text) + 2), "");
}

void table_print(const struct table *table)
{
    size_t widths[16];
    bool colour = text_may_colour(STDOUT_FILENO);
    if (table->rows == 0)
        return;
    for (size_t c = 0; c < table->columns; c++)
        widths[c] = measure(table, c);
    fputs(colour ? "\033[1m" : "", stdout);
    for (size_t c = 0; c < table->columns; c++)
        print_cell(table, table->titles[c], c, widths[c]);
    for (size_t row = 0; row < table->rows; row++) {
        bool dim = table->is_dim && table->is_dim(table->data, row);
        fputs(!colour ? "" : dim ? "\033[0;2m" : "\033[0m", stdout);
        for (size_t c = 0; c < table->columns; c++)
            print_cell(table, table->cell(table->data, row, c).text, c, widths[c]);
    }
    fputs(colour ? "\033[0m" : "", stdout);
}
