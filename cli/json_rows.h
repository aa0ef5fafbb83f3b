/* json_rows.h - holders, waiters and past holds as JSON, with the keys of docs/json.md. */
#pragma once
#include "row_list.h"

/* Prints one holder or waiter as an object. */
void json_print_row(const struct hf_row *row);

/* Prints one past hold as an object. */
void json_print_hold(const struct hf_row *row);

/* Prints the rows as items of an array, a line each, without the brackets. */
void json_print_items(const struct row_list *rows, void (*print)(const struct hf_row *row));

/* Prints the rows as an array. */
void json_print_rows(const struct row_list *rows, void (*print)(const struct hf_row *row));
