/* sort_by_urgency.h - sorts names so that those that may need help come first. */
#pragma once
#include "row_list.h"

/* How names can be sorted; the words of --sort, in their order. */
enum row_order { ORDER_URGENCY, ORDER_NAME, ORDER_WAITERS, ORDER_SINCE, ORDER_LEFT };
#define ROW_ORDERS "urgency|name|waiters|since|left"

/* Sorts rows of several names. Rows of one name stay together and in their order; names that are
 * equal are in byte order. ORDER_WAITERS: most waiters first. ORDER_SINCE: oldest hold first.
 * ORDER_LEFT: the hold that ends first. Returns false after a message if memory is out. */
bool sort_rows(struct row_list *rows, enum row_order order);

/* Sorts by urgency: the name whose hold has the smallest share of its ttl left comes
 * first, then the name with the most waiters, then byte order. Rows of one name stay together
 * and in their order. Returns false after a message if memory is out. */
bool sort_by_urgency(struct row_list *rows);
