/* py_module.c - the module holdfast._holdfast: its types, and what Python tells it. */
#include "py_binding.h"

struct module_types types;

/* setup(make_error, lease_type): how exceptions are made, and the class of leases, a subclass of
 * Handle. */
static PyObject *setup(PyObject *module, PyObject *args)
{
    PyObject *make_error, *lease;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &make_error, &lease))
        return NULL;
    Py_INCREF(make_error);
    Py_INCREF(lease);
    types.make_error = make_error;
    types.lease = (PyTypeObject *)lease;
    Py_RETURN_NONE;
}

/* check_url(url): raises what opening would raise, and opens nothing. */
static PyObject *check_url(PyObject *module, PyObject *args)
{
    const char *url;

    (void)module;
    if (!PyArg_ParseTuple(args, "z", &url))
        return NULL;
    return none_or_fail(hf_check_url(url));
}

static PyMethodDef functions[] = {{"setup", setup, METH_VARARGS, NULL},
                                  {"check_url", check_url, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "holdfast._holdfast",
                                        "libholdfast for Python; use the package holdfast",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

static int add_types(PyObject *module)
{
    types.client = (PyTypeObject *)PyType_FromSpec(&client_spec);
    types.lease = (PyTypeObject *)PyType_FromSpec(&lease_spec);
    if (!types.client || !types.lease)
        return -1;
    return PyModule_AddObject(module, "Client", (PyObject *)types.client) ||
           PyModule_AddObject(module, "Handle", (PyObject *)types.lease) ||
           PyModule_AddStringConstant(module, "version", hf_version());
}

PyMODINIT_FUNC PyInit__holdfast(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (!module || add_types(module) || core_watch_forks()) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
