/* py_client.c - the type Client: open, acquire, list, close.
 *
 * acquire() first asks without waiting: a free lock is one call of the library, with no other
 * thread. If the lock is busy and the caller waits, it parks on a semaphore behind
 * hf_acquire_start, because a signal ends that sleep: handlers run, and one that raises (Ctrl-C)
 * gives up the place in the queue. */
#include "py_binding.h"

#include <semaphore.h>
#include <stdio.h>
#include <time.h>

struct client {
    PyObject_HEAD struct core *core; /* NULL: not opened */
    bool waits_by_default;
    bool answers_at_once;
    uint32_t last_id;
};

/* ---- Opening and closing ---- */

static void learn(struct client *client)
{
    struct hf_capabilities capabilities = {.size = sizeof capabilities};
    const char *source = "default";
    int64_t value = 0;

    (void)hf_client_setting(client->core->hf, "wait", &value, &source);
    client->waits_by_default = strcmp(source, "default") == 0;
    (void)hf_client_setting(client->core->hf, "spin", &client->core->spin_us, &source);
    (void)hf_client_capabilities(client->core->hf, &capabilities);
    client->answers_at_once = capabilities.can & HF_CAN_ANSWER_AT_ONCE;
}

static int client_init(PyObject *self, PyObject *args, PyObject *names)
{
    struct client *client = (struct client *)self;
    static char *keys[] = {"url", "has_loop", NULL};
    const char *url = NULL;
    int has_loop = 0;

    if (!PyArg_ParseTupleAndKeywords(args, names, "|zp", keys, &url, &has_loop))
        return -1;
    if (client->core)
        return 0;
    client->core = core_open(url, has_loop);
    if (!client->core)
        return -1;
    learn(client);
    return 0;
}

static void client_dealloc(PyObject *self)
{
    struct client *client = (struct client *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (client->core) {
        (void)core_close(client->core, 1000);
        core_unref(client->core);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *client_close(PyObject *self, PyObject *args)
{
    struct client *client = (struct client *)self;
    PyObject *timeout = NULL;
    int64_t ms;

    if (!PyArg_ParseTuple(args, "|O", &timeout) || read_ms(timeout, "timeout", 1000, &ms))
        return NULL;
    return none_or_fail(core_close(client->core, ms));
}

/* ---- Acquiring ---- */

struct wish {
    struct hf_request request;
    PyObject *name;
    PyObject *taken; /* list that the lease is added to, or NULL */
    int64_t wait_ms;
};

static int read_kind(const char *kind, struct hf_request *request)
{
    if (!kind) {
        request->kind = request->capacity ? HF_SEMAPHORE : HF_EXCLUSIVE;
        return 0;
    }
    for (int k = HF_EXCLUSIVE; k <= HF_WRITE; k++)
        if (strcmp(kind, hf_kind_name((hf_kind)k)) == 0) {
            request->kind = (hf_kind)k;
            return 0;
        }

    char text[160];
    snprintf(text, sizeof text,
             "kind: \"%.80s\" is not a kind; use exclusive, semaphore, read or write", kind);
    fail(HF_INVALID, text);
    return -1;
}

/* Refuses bytes. The parser takes bytes for a text, too, and a lease would then have a name of
 * another type. */
static int read_name(struct wish *wish, const char *name, Py_ssize_t len)
{
    if (!wish->name || !PyUnicode_Check(wish->name)) {
        PyErr_SetString(PyExc_TypeError, "name: must be a str");
        return -1;
    }
    if (len == 0) {
        fail(HF_INVALID, "name: must not be empty");
        return -1;
    }
    wish->request.name = name;
    wish->request.name_len = (size_t)len;
    return 0;
}

static int64_t default_wait(const struct client *client)
{
    return client->waits_by_default ? HF_FOREVER : HF_WAIT_DEFAULT;
}

/* wait: not given means as URL or environment say, else for ever; None means for ever. */
static int read_wait(const struct client *client, PyObject *wait, int64_t *ms)
{
    if (!wait) {
        *ms = default_wait(client);
        return 0;
    }
    return read_ms(wait, "wait", HF_FOREVER, ms);
}

static int read_wish(const struct client *client, PyObject *args, PyObject *names,
                     struct wish *wish)
{
    static char *keys[] = {"",      "",      "ttl",   "wait",  "kind",           "capacity",
                           "units", "owner", "label", "renew", "correlation_id", "max_hold",
                           NULL};
    struct hf_request *request = &wish->request;
    const char *name, *kind = NULL;
    PyObject *ttl = NULL, *wait = NULL, *max_hold = NULL, *capacity = NULL, *units = NULL;
    Py_ssize_t len;
    int renew = 1;

    *wish = (struct wish){.request = {.size = sizeof *request}};
    if (!PyArg_ParseTupleAndKeywords(args, names, "s#|O!$OOzOOzzpzO", keys, &name, &len,
                                     &PyList_Type, &wish->taken, &ttl, &wait, &kind, &capacity,
                                     &units, &request->owner, &request->label, &renew,
                                     &request->correlation_id, &max_hold))
        return -1;
    wish->name = PyTuple_GetItem(args, 0);
    if (read_name(wish, name, len) || read_count(capacity, "capacity", &request->capacity) ||
        read_count(units, "units", &request->units) || read_kind(kind, request) ||
        read_ms(ttl, "ttl", 0, &request->ttl_ms) ||
        read_ms(max_hold, "max_hold", 0, &request->max_hold_ms) ||
        read_wait(client, wait, &wish->wait_ms))
        return -1;
    request->flags = renew ? HF_AUTO_RENEW : 0;
    return 0;
}

/* ---- Waiting, on the caller's thread ---- */

struct outcome {
    sem_t done;
    hf_status status;
    char text[ERROR_TEXT_MAX];
    struct holder holder;
};

/* Runs on the library's thread, without the GIL. */
static void on_done(hf_lease *handle, hf_status status, void *arg)
{
    struct outcome *outcome = arg;

    (void)handle;
    outcome->status = status;
    snprintf(outcome->text, sizeof outcome->text, "%s", status == HF_OK ? "" : hf_error_text());
    holder_read(&outcome->holder, status);
    sem_post(&outcome->done);
}

enum { FIRST_SLICE_MS = 20, SLICE_MS = 1000 };

static struct timespec after_ms(int64_t ms)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += (time_t)(ms / 1000);
    time.tv_nsec += (long)(ms % 1000) * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

/* Sleeps until the outcome is known. If a signal's handler raises, the wait is cancelled, and its
 * end is still waited for: the callback uses the caller's stack. Returns true if a handler
 * raised.
 *
 * A signal interrupts the sleep, but not if it comes just before it or reaches another thread. So
 * the sleep ends by itself, too: soon at first, and then every second. */
static bool sleep_until_done(struct outcome *outcome, hf_lease *handle)
{
    bool raised = false;
    int64_t slice_ms = FIRST_SLICE_MS;

    for (int slept = -1; slept != 0;) {
        struct timespec until = after_ms(slice_ms);
        Py_BEGIN_ALLOW_THREADS slept = sem_timedwait(&outcome->done, &until);
        Py_END_ALLOW_THREADS slice_ms = 2 * slice_ms < SLICE_MS ? 2 * slice_ms : SLICE_MS;
        if (slept != 0 && !raised && PyErr_CheckSignals() != 0) {
            raised = true;
            (void)hf_cancel(handle);
        }
    }
    return raised;
}

/* Returns the status of a wait that has ended. HF_CANCELLED becomes HF_CLOSED unless a handler
 * raised, because otherwise only close() ends a wait, even if that close() times out. An exception
 * is set unless HF_OK. */
static hf_status judge(struct outcome *outcome, bool raised)
{
    if (raised)
        return HF_CANCELLED;
    if (outcome->status == HF_CANCELLED) {
        fail(HF_CLOSED, "the client was closed during the wait");
        return HF_CLOSED;
    }
    if (outcome->status != HF_OK)
        fail_with(outcome->status, outcome->text, &outcome->holder);
    return outcome->status;
}

static hf_status acquire_and_wait(struct core *core, struct hf_request *request, hf_lease **handle)
{
    struct outcome outcome;
    struct parked parked;
    hf_status status;

    sem_init(&outcome.done, 0, 0);
    Py_BEGIN_ALLOW_THREADS status = hf_acquire_start(core->hf, request, on_done, &outcome, handle);
    Py_END_ALLOW_THREADS if (status != HF_OK)
    {
        fail(status, hf_error_text());
        sem_destroy(&outcome.done);
        return status;
    }

    core_park(core, &parked, *handle);
    bool raised = sleep_until_done(&outcome, *handle);
    core_unpark(core, &parked);
    sem_destroy(&outcome.done);
    return judge(&outcome, raised);
}

static hf_status acquire_at_once(struct core *core, struct hf_request *request, hf_lease **handle)
{
    hf_status status;

    Py_BEGIN_ALLOW_THREADS status = hf_acquire(core->hf, request, handle);
    Py_END_ALLOW_THREADS return status;
}

/* The exception is set unless HF_OK. */
static hf_status acquire_blocking(struct core *core, struct wish *wish, hf_lease **handle)
{
    struct hf_request *request = &wish->request;
    hf_status status = acquire_at_once(core, request, handle);

    if (status == HF_OK)
        return HF_OK;
    if (wish->wait_ms == 0 || !hf_status_retry(status)) {
        fail_now(status);
        return status;
    }
    request->wait_ms = wish->wait_ms;
    return acquire_and_wait(core, request, handle);
}

/* acquire(name, taken, **options) -> Lease. The lease is in the list `taken` as soon as a handler
 * of a signal can raise. Otherwise a handler that raises between the grant and the return would
 * lose the lease. */
static PyObject *client_acquire(PyObject *self, PyObject *args, PyObject *names)
{
    struct client *client = (struct client *)self;
    struct wish wish;

    if (read_wish(client, args, names, &wish) || !core_enter(client->core))
        return NULL;
    struct lease *lease = lease_new(client->core, wish.name, 0);
    hf_status status = lease ? acquire_blocking(client->core, &wish, &lease->hf) : HF_NO_MEMORY;
    if (status == HF_OK && wish.taken && PyList_Append(wish.taken, (PyObject *)lease))
        status = HF_NO_MEMORY;
    if (status == HF_OK) {
        lease->token = hf_lease_token(lease->hf);
    } else if (lease && lease->hf) {
        hf_lease_free(lease->hf); /* releases a grant that came before the cancel */
        lease->hf = NULL;
    }
    core_leave(client->core);
    if (status == HF_OK)
        return (PyObject *)lease;
    Py_XDECREF((PyObject *)lease);
    return NULL;
}

/* ---- For event loops: the outcome is an event ---- */

static void on_done_event(hf_lease *handle, hf_status status, void *arg)
{
    (void)handle;
    core_post((uintptr_t)arg, EVENT_DONE, status);
}

static void on_lost_event(hf_lease *handle, hf_status why, void *arg)
{
    (void)handle;
    core_post((uintptr_t)arg, EVENT_LOST, why);
}

/* A free lock of an engine that answers at once needs no event. HF_OK: the lease is held. */
static hf_status start(struct client *client, struct wish *wish, struct lease *lease)
{
    struct core *core = client->core;
    struct hf_request *request = &wish->request;
    void *ticket = (void *)core_ticket(core, lease->id);
    hf_status status = HF_BUSY;

    request->on_lost = on_lost_event;
    request->lost_arg = ticket;
    if (client->answers_at_once) {
        status = hf_acquire(core->hf, request, &lease->hf);
        if (status == HF_OK)
            lease->token = hf_lease_token(lease->hf);
    }
    if (status != HF_BUSY || (client->answers_at_once && wish->wait_ms == 0))
        return status;
    request->wait_ms = wish->wait_ms;
    return hf_acquire_start(core->hf, request, on_done_event, ticket, &lease->hf);
}

/* acquire_start(name, **options) -> Lease: granted if it has a token, else decided by an event. */
static PyObject *client_acquire_start(PyObject *self, PyObject *args, PyObject *names)
{
    struct client *client = (struct client *)self;
    struct wish wish;

    if (read_wish(client, args, names, &wish) || !core_enter(client->core))
        return NULL;
    struct lease *lease = lease_new(client->core, wish.name, ++client->last_id);
    hf_status status = lease ? start(client, &wish, lease) : HF_NO_MEMORY;
    if (lease && status != HF_OK)
        fail_now(status);
    core_leave(client->core);
    if (status == HF_OK)
        return (PyObject *)lease;
    Py_XDECREF((PyObject *)lease);
    return NULL;
}

/* Lets the library read replies and post their events. After a close the events are there
 * already. */
static void process(struct core *core)
{
    if (!core->has_loop)
        return;
    if (!core_enter(core)) {
        PyErr_Clear();
        return;
    }
    Py_BEGIN_ALLOW_THREADS(void) hf_process(core->hf);
    Py_END_ALLOW_THREADS core_leave(core);
}

/* take_events() -> [(kind, id, code | None, text, holder | None)] */
static PyObject *client_take_events(PyObject *self, PyObject *none)
{
    struct client *client = (struct client *)self;
    process(client->core);
    PyObject *list = PyList_New(0);
    struct event *event = list ? core_take_events(client->core) : NULL;

    (void)none;
    while (event) {
        struct event *next = event->next;
        const char *code = event->status == HF_OK ? NULL : hf_status_name(event->status);
        PyObject *text =
            PyUnicode_DecodeUTF8(event->text, (Py_ssize_t)strlen(event->text), "replace");
        PyObject *item = Py_BuildValue("iIzNN", (int)event->kind, event->id, code, text,
                                       holder_as_dict(&event->holder));
        if (!item || PyList_Append(list, item))
            PyErr_Clear();
        Py_XDECREF(item);
        free(event);
        event = next;
    }
    return list;
}

/* reply_within(kind, id, microseconds) -> enum nearby. */
static PyObject *client_reply_within(PyObject *self, PyObject *args)
{
    struct core *core = ((struct client *)self)->core;
    int kind;
    unsigned id;
    long microseconds;

    if (!PyArg_ParseTuple(args, "iIl", &kind, &id, &microseconds))
        return NULL;
    if (!core_enter(core)) {
        PyErr_Clear();
        return PyLong_FromLong(NEARBY_NOTHING);
    }
    enum nearby nearby = core_await_event(core, (enum event_kind)kind, id, microseconds);
    core_leave(core);
    return PyLong_FromLong(nearby);
}

static PyObject *client_event_fd(PyObject *self, PyObject *none)
{
    struct core *core = ((struct client *)self)->core;

    (void)none;
    if (!core_enter(core))
        return NULL;
    int fd = core_event_fd(core);
    core_leave(core);
    return PyLong_FromLong(fd);
}

/* ---- Seeing ---- */

struct rows {
    PyThreadState *state;
    PyObject *list;
    bool failed;
};

/* Runs inside hf_list, on the caller's thread, with the GIL given up. */
static void on_row(void *arg, const struct hf_row *row)
{
    struct rows *rows = arg;

    PyEval_RestoreThread(rows->state);
    PyObject *dict = rows->failed ? NULL : row_as_dict(row);
    rows->failed |= !dict || PyList_Append(rows->list, dict);
    Py_XDECREF(dict);
    rows->state = PyEval_SaveThread();
}

static PyObject *client_list(PyObject *self, PyObject *args)
{
    struct client *client = (struct client *)self;
    struct rows rows = {.list = PyList_New(0)};
    const char *prefix = NULL;

    if (!rows.list || !PyArg_ParseTuple(args, "|z", &prefix) || !core_enter(client->core)) {
        Py_XDECREF(rows.list);
        return NULL;
    }
    rows.state = PyEval_SaveThread();
    hf_status status = hf_list(client->core->hf, prefix, on_row, &rows);
    PyEval_RestoreThread(rows.state);
    if (status != HF_OK && !rows.failed)
        fail(status, hf_error_text());
    core_leave(client->core);
    if (status == HF_OK && !rows.failed)
        return rows.list;
    Py_DECREF(rows.list);
    return NULL;
}

static PyObject *get_answers_at_once(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct client *)self)->answers_at_once);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
    struct client *client = (struct client *)self;

    (void)unused;
    return PyBool_FromLong(!client->core || !core_is_open(client->core));
}

static PyMethodDef methods[] = {
    {"acquire", (PyCFunction)(void (*)(void))client_acquire, METH_VARARGS | METH_KEYWORDS, NULL},
    {"acquire_start", (PyCFunction)(void (*)(void))client_acquire_start,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"take_events", client_take_events, METH_NOARGS, NULL},
    {"reply_within", client_reply_within, METH_VARARGS, NULL},
    {"event_fd", client_event_fd, METH_NOARGS, NULL},
    {"list", client_list, METH_VARARGS, NULL},
    {"close", client_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"answers_at_once", get_answers_at_once, NULL, NULL, NULL},
                                   {"closed", get_closed, NULL, NULL, NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_init, client_init},      {Py_tp_dealloc, client_dealloc},
                              {Py_tp_methods, methods},       {Py_tp_getset, attributes},
                              {Py_tp_new, PyType_GenericNew}, {0, NULL}};

PyType_Spec client_spec = {"holdfast._holdfast.Client", sizeof(struct client), 0,
                           Py_TPFLAGS_DEFAULT, slots};
