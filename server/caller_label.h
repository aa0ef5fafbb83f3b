/* caller_label.h - the label of a hold that was acquired over HTTP: the client's own label and who
 * the client is. The engine knows only the process of the service, so the label has to carry it. */
#pragma once
#include "holdfast.h"
#include "http.h"

/* Returns who made a request: the name of its token, that of its certificate, or its address. */
const char *caller_name(const struct exchange *x);

/* Prints "LABEL @ CALLER", or "@ CALLER" without a label. The caller is left out if both do not
 * fit. */
void caller_label_print(const char *label, const char *caller, char text[HF_LABEL_MAX + 1]);

/* The parts of a label that caller_label_print() made. If a label is not of that form, `caller` is
 * empty and `label` is all of it. */
struct caller_label {
    char label[HF_LABEL_MAX + 1], caller[HF_LABEL_MAX + 1];
};
struct caller_label caller_label_read(const char *text);
