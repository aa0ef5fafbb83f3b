/* protobuf_text.h - messages of protobuf as text, without their schema: fields by number, as in
 * 1:{2:"key" 3:17} 4:"\x00". */
#pragma once
#include <stddef.h>

/* Notes the message as text. */
void protobuf_print(const unsigned char *bytes, size_t len);
/* Returns the length of the message; -1: the text makes no sense. */
long protobuf_make(const char *text, char *bytes, size_t size);
