/* py_values.c - seconds and rows, from Python to C and back; statuses as exceptions. */
#include "py_binding.h"

#include <math.h>
#include <stdio.h>

#define MS_MAX 9e15 /* below 2^53: every whole number up to here is exact */

void holder_read(struct holder *holder, hf_status status)
{
    holder->row = (struct hf_row){.size = sizeof holder->row};
    holder->is_known = (status == HF_BUSY || status == HF_TIMEOUT) && hf_error_holder(&holder->row);
    if (!holder->is_known)
        return;
    snprintf(holder->name, sizeof holder->name, "%s", holder->row.name);
    snprintf(holder->host, sizeof holder->host, "%s", holder->row.host);
    snprintf(holder->label, sizeof holder->label, "%s", holder->row.label);
}

PyObject *holder_as_dict(struct holder *holder)
{
    if (!holder || !holder->is_known)
        Py_RETURN_NONE;
    holder->row.name = holder->name;
    holder->row.host = holder->host;
    holder->row.label = holder->label;
    return row_as_dict(&holder->row);
}

PyObject *fail_now(hf_status status)
{
    struct holder holder;

    holder_read(&holder, status);
    return fail_with(status, hf_error_text(), &holder);
}

PyObject *fail(hf_status status, const char *text)
{
    return fail_with(status, text, NULL);
}

PyObject *fail_with(hf_status status, const char *text, struct holder *holder)
{
    PyObject *who = holder_as_dict(holder);
    PyObject *error =
        who ? PyObject_CallFunction(types.make_error, "ssO", hf_status_name(status), text, who)
            : NULL;

    Py_XDECREF(who);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *none_or_fail(hf_status status)
{
    if (status != HF_OK)
        return fail_now(status);
    Py_RETURN_NONE;
}

/* Raises INVALID: `what` is the option, `is_not` what its value should have been. */
static int refuse(PyObject *value, const char *what, const char *is_not)
{
    PyErr_Clear(); /* or a __repr__ that is written in Python would fail */
    PyObject *text = PyUnicode_FromFormat("%s: %R is not %s", what, value, is_not);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;

    PyErr_Clear();
    fail(HF_INVALID, bytes ? PyBytes_AsString(bytes) : what);
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    return -1;
}

static double seconds_of(PyObject *value)
{
    if (PyFloat_Check(value) || (PyLong_Check(value) && !PyBool_Check(value)))
        return PyFloat_AsDouble(value);

    PyObject *total = PyObject_CallMethod(value, "total_seconds", NULL);
    double seconds = total ? PyFloat_AsDouble(total) : -1;
    Py_XDECREF(total);
    return seconds;
}

int read_ms(PyObject *value, const char *what, int64_t none, int64_t *ms)
{
    if (!value || value == Py_None) {
        *ms = none;
        return 0;
    }

    double seconds = seconds_of(value);
    bool is_time = !PyErr_Occurred() && seconds >= 0 && seconds * 1000 <= MS_MAX;
    if (!is_time)
        return refuse(value, what, "a time; use seconds, 0 or more, or a timedelta");
    /* 0.1 s is 100 ms, although 0.1 is a little more than a tenth. */
    *ms = (int64_t)ceil(seconds * 1000 - 1e-6);
    return 0;
}

int read_count(PyObject *value, const char *what, uint32_t *count)
{
    if (!value)
        return 0;

    unsigned long number = PyLong_AsUnsignedLong(value);
    if (!PyErr_Occurred() && number <= UINT32_MAX) {
        *count = (uint32_t)number;
        return 0;
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    return refuse(value, what, "a count; use a whole number, 1 or more");
}

static int add(PyObject *dict, const char *key, PyObject *value)
{
    int failed = value ? PyDict_SetItemString(dict, key, value) : -1;

    Py_XDECREF(value);
    return failed;
}

static PyObject *text_or_none(const char *text)
{
    if (!text || !*text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *seconds(int64_t ms)
{
    return PyFloat_FromDouble((double)ms / 1000);
}

static int add_what(PyObject *dict, const struct hf_row *row)
{
    bool holds = row->role == HF_HOLDER;

    return add(dict, "name", text_or_none(row->name)) ||
           add(dict, "role", text_or_none(holds ? "holder" : "waiter")) ||
           add(dict, "kind", text_or_none(hf_kind_name(row->kind))) ||
           add(dict, "units", PyLong_FromUnsignedLong(row->units)) ||
           add(dict, "capacity", PyLong_FromUnsignedLong(row->capacity)) ||
           add(dict, "used", PyLong_FromUnsignedLong(row->used)) ||
           add(dict, "place", PyLong_FromUnsignedLong(row->place)) ||
           add(dict, "token", PyLong_FromUnsignedLongLong(row->token));
}

static int add_who(PyObject *dict, const struct hf_row *row)
{
    return add(dict, "remaining", seconds(row->left_ms)) ||
           add(dict, "since", seconds(row->since_ms)) || add(dict, "ttl", seconds(row->ttl_ms)) ||
           add(dict, "pid", PyLong_FromLongLong(row->pid)) ||
           add(dict, "host", text_or_none(row->host)) ||
           add(dict, "label", text_or_none(row->label)) ||
           add(dict, "detached", PyBool_FromLong(row->detached)) ||
           add(dict, "foreign", PyBool_FromLong(row->foreign));
}

PyObject *row_as_dict(const struct hf_row *row)
{
    PyObject *dict = PyDict_New();

    if (dict && (add_what(dict, row) || add_who(dict, row))) {
        Py_DECREF(dict);
        return NULL;
    }
    return dict;
}
