/* py_lease.c - the type Lease: one hold.
 *
 * A lease whose last reference goes while it is held stays held, renewed, until the client is
 * closed: releasing it from the garbage collector would free a lock under running work. */
#include "py_binding.h"

struct lease *lease_new(struct core *core, PyObject *name, uint32_t id)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(types.lease, Py_tp_alloc);
    struct lease *lease = (struct lease *)alloc(types.lease, 0);

    if (!lease)
        return NULL;
    atomic_fetch_add(&core->references, 1);
    lease->core = core;
    Py_INCREF(name);
    lease->name = name;
    lease->id = id;
    return lease;
}

static void warn_of(const struct lease *lease)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (PyErr_ResourceWarning(lease->name, 1,
                              "the lease on %R was dropped while held; it stays held until its "
                              "client is closed",
                              lease->name))
        PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

/* Frees the handle of a lease that has ended or never was granted. */
static void free_handle(struct lease *lease)
{
    bool is_held = lease->hf && core_is_open(lease->core) && hf_lease_ok(lease->hf);

    if (is_held && lease->token) {
        warn_of(lease);
        return;
    }
    if (!lease->hf || !core_is_open(lease->core))
        return;
    if (core_enter(lease->core)) {
        hf_lease_free(lease->hf);
        core_leave(lease->core);
    } else {
        PyErr_Clear();
    }
}

static void lease_dealloc(PyObject *self)
{
    struct lease *lease = (struct lease *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (lease->core) {
        free_handle(lease);
        core_unref(lease->core);
    }
    Py_XDECREF(lease->name);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Enters the client for a call with the lease's handle. False: an exception is set. */
static bool enter(struct lease *lease)
{
    if (lease->core->generation != fork_generation()) {
        fail(HF_FORKED, "the lease belongs to the parent process");
        return false;
    }
    if (!lease->hf || !core_is_open(lease->core)) {
        fail(HF_NOT_HELD, "the lease was released before");
        return false;
    }
    if (!core_enter(lease->core))
        return false;
    lease->calls++;
    return true;
}

/* A thread may release while another one is inside an extend. So the last one to leave frees the
 * handle. */
static void leave(struct lease *lease)
{
    if (--lease->calls == 0 && lease->ended) {
        hf_lease_free(lease->ended);
        lease->ended = NULL;
    }
    core_leave(lease->core);
}

/* Reads the token, which an upgrade changes. A close begins under the GIL, which is kept here, so
 * the handle of an open client is not freed meanwhile. */
static uint64_t read_token(struct lease *lease)
{
    if (lease->token && lease->hf && core_is_open(lease->core))
        lease->token = hf_lease_token(lease->hf);
    return lease->token;
}

/* Takes the handle out of the lease, for the one call that ends it. */
static hf_lease *take_handle(struct lease *lease)
{
    (void)read_token(lease);
    lease->ended = lease->hf;
    lease->hf = NULL;
    return lease->ended;
}

/* ---- Calls ---- */

static PyObject *lease_release(PyObject *self, PyObject *none)
{
    struct lease *lease = (struct lease *)self;
    hf_status status;

    (void)none;
    if (!enter(lease))
        return NULL;
    hf_lease *handle = take_handle(lease);
    Py_BEGIN_ALLOW_THREADS status = hf_release(handle);
    Py_END_ALLOW_THREADS PyObject *result = none_or_fail(status);
    leave(lease);
    return result;
}

static PyObject *lease_extend(PyObject *self, PyObject *args)
{
    struct lease *lease = (struct lease *)self;
    PyObject *ttl = NULL;
    int64_t ms;
    hf_status status;

    if (!PyArg_ParseTuple(args, "|O", &ttl) || read_ms(ttl, "ttl", 0, &ms) || !enter(lease))
        return NULL;
    hf_lease *handle = lease->hf;
    Py_BEGIN_ALLOW_THREADS status = hf_extend(handle, ms);
    Py_END_ALLOW_THREADS PyObject *result = none_or_fail(status);
    leave(lease);
    return result;
}

/* ---- For event loops: the outcome is an event ---- */

static void on_released(hf_lease *handle, hf_status status, void *arg)
{
    (void)handle;
    core_post((uintptr_t)arg, EVENT_RELEASED, status);
}

static void on_extended(hf_lease *handle, hf_status status, void *arg)
{
    (void)handle;
    core_post((uintptr_t)arg, EVENT_EXTENDED, status);
}

/* From here on the lease is not held, and its handle is freed: the callback does not use it. */
static PyObject *lease_release_start(PyObject *self, PyObject *none)
{
    struct lease *lease = (struct lease *)self;
    void *ticket = (void *)core_ticket(lease->core, lease->id);

    (void)none;
    if (!enter(lease))
        return NULL;
    PyObject *result = none_or_fail(hf_release_start(take_handle(lease), on_released, ticket));
    leave(lease);
    return result;
}

/* extend_start(ttl, id): an id of the call, because a lease may be extended many times. */
static PyObject *lease_extend_start(PyObject *self, PyObject *args)
{
    struct lease *lease = (struct lease *)self;
    PyObject *ttl;
    unsigned id;
    int64_t ms;

    if (!PyArg_ParseTuple(args, "OI", &ttl, &id) || read_ms(ttl, "ttl", 0, &ms) || !enter(lease))
        return NULL;
    PyObject *result = none_or_fail(
        hf_extend_start(lease->hf, ms, on_extended, (void *)core_ticket(lease->core, id)));
    leave(lease);
    return result;
}

typedef hf_status convert_start(hf_lease *lease, hf_done_fn *done, void *arg);

/* upgrade_start(id), downgrade_start(id): the event is that of an extend. */
static PyObject *convert_later(struct lease *lease, PyObject *args, convert_start *start)
{
    unsigned id;

    if (!PyArg_ParseTuple(args, "I", &id) || !enter(lease))
        return NULL;
    PyObject *result =
        none_or_fail(start(lease->hf, on_extended, (void *)core_ticket(lease->core, id)));
    leave(lease);
    return result;
}

static PyObject *lease_upgrade_start(PyObject *self, PyObject *args)
{
    return convert_later((struct lease *)self, args, hf_upgrade_start);
}

static PyObject *lease_downgrade_start(PyObject *self, PyObject *args)
{
    return convert_later((struct lease *)self, args, hf_downgrade_start);
}

/* ---- Conversions and waits ---- */

static PyObject *convert(struct lease *lease, hf_status (*call)(hf_lease *))
{
    hf_status status;

    if (!enter(lease))
        return NULL;
    hf_lease *handle = lease->hf;
    Py_BEGIN_ALLOW_THREADS status = call(handle);
    Py_END_ALLOW_THREADS PyObject *result = none_or_fail(status);
    leave(lease);
    return result;
}

static PyObject *lease_upgrade(PyObject *self, PyObject *none)
{
    (void)none;
    return convert((struct lease *)self, hf_upgrade);
}

static PyObject *lease_downgrade(PyObject *self, PyObject *none)
{
    (void)none;
    return convert((struct lease *)self, hf_downgrade);
}

/* Ends the wait of a lease that was started and not yet granted. */
static PyObject *lease_cancel(PyObject *self, PyObject *none)
{
    struct lease *lease = (struct lease *)self;

    (void)none;
    if (!enter(lease))
        return NULL;
    (void)hf_cancel(lease->hf);
    leave(lease);
    Py_RETURN_NONE;
}

/* Called after EVENT_DONE with HF_OK: the lease has its token. */
static PyObject *lease_granted(PyObject *self, PyObject *none)
{
    struct lease *lease = (struct lease *)self;

    (void)none;
    if (!enter(lease))
        return NULL;
    lease->token = hf_lease_token(lease->hf);
    leave(lease);
    Py_RETURN_NONE;
}

/* ---- Attributes ---- */

/* A close begins under the GIL, which is kept here: the lease of an open client is not freed
 * meanwhile. */
static int64_t left_ms(const struct lease *lease)
{
    return lease->hf && core_is_open(lease->core) ? hf_lease_left_ms(lease->hf) : 0;
}

static PyObject *get_remaining(PyObject *self, void *unused)
{
    (void)unused;
    return PyFloat_FromDouble((double)left_ms((struct lease *)self) / 1000);
}

static PyObject *get_held(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(left_ms((struct lease *)self) > 0);
}

static PyObject *get_token(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(read_token((struct lease *)self));
}

static PyObject *get_name(PyObject *self, void *unused)
{
    PyObject *name = ((struct lease *)self)->name;

    (void)unused;
    Py_INCREF(name);
    return name;
}

static PyObject *get_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(((struct lease *)self)->id);
}

static PyObject *get_forked(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct lease *)self)->core->generation != fork_generation());
}

static PyMethodDef methods[] = {{"release", lease_release, METH_NOARGS, NULL},
                                {"extend", lease_extend, METH_VARARGS, NULL},
                                {"release_start", lease_release_start, METH_NOARGS, NULL},
                                {"extend_start", lease_extend_start, METH_VARARGS, NULL},
                                {"upgrade_start", lease_upgrade_start, METH_VARARGS, NULL},
                                {"downgrade_start", lease_downgrade_start, METH_VARARGS, NULL},
                                {"upgrade", lease_upgrade, METH_NOARGS, NULL},
                                {"downgrade", lease_downgrade, METH_NOARGS, NULL},
                                {"cancel", lease_cancel, METH_NOARGS, NULL},
                                {"granted", lease_granted, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"remaining", get_remaining, NULL, NULL, NULL},
                                   {"held", get_held, NULL, NULL, NULL},
                                   {"token", get_token, NULL, NULL, NULL},
                                   {"name", get_name, NULL, NULL, NULL},
                                   {"id", get_id, NULL, NULL, NULL},
                                   {"forked", get_forked, NULL, NULL, NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, lease_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, attributes},
                              {0, NULL}};

PyType_Spec lease_spec = {"holdfast._holdfast.Handle", sizeof(struct lease), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
