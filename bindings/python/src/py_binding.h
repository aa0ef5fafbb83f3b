/* py_binding.h - what the files of the extension share.
 *
 *     py_module.c   the module: constants, the function that makes exceptions, fork
 *     py_client.c   the type Client: open, acquire, list, close
 *     py_lease.c    the type Lease: extend, release, time left
 *     py_core.c     the part of a client that outlives its Python object: calls inside, events
 *     py_values.c   seconds, names and rows: from Python to C and back
 *
 * Three rules. No callback of the library takes the GIL: renewals run on the library's thread and
 * would wait behind C code that keeps it. Every call that may wait gives the GIL up. No library
 * call begins once a close has begun, because closing frees all leases (core_enter). */
#pragma once
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define ERROR_TEXT_MAX 1024 /* as long as the library makes them: a cut could split a character */

/* ---- Events: what the library's thread leaves for an event loop ---- */

enum event_kind { EVENT_DONE = 0, EVENT_LOST = 1, EVENT_RELEASED = 2, EVENT_EXTENDED = 3 };

/* Who is in the way, as the library said with this thread's last error. Needs no GIL. */
struct holder {
    bool is_known;
    struct hf_row row; /* its texts are those below */
    char name[HF_NAME_MAX + 1], host[256], label[HF_LABEL_MAX + 1];
};
void holder_read(struct holder *holder, hf_status status);

struct event {
    struct event *next;
    enum event_kind kind;
    uint32_t id; /* id that Python gave the lease */
    hf_status status;
    char text[ERROR_TEXT_MAX];
    struct holder holder;
};

/* A caller that is parked in acquire(), so that close() can end its wait. */
struct parked {
    struct parked *next, **link;
    hf_lease *lease;
};

/* Its references are counted: the Client has one, and so has each Lease. */
struct core {
    hf_client *hf; /* NULL: closed */
    unsigned slot; /* index in the table of cores */
    unsigned long generation;
    atomic_uint references;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t idle;
    unsigned calls; /* threads inside a call of the library */
    bool closing;
    int64_t spin_us;       /* setting `spin`: how long to check for a reply before sleeping */
    unsigned misses, rest; /* of spins; see read_replies() */
    bool has_loop; /* an event loop calls hf_process, which reads replies and posts the events */
    struct parked *parked;
    int event_fd; /* readable while there are events, unless has_loop */
    struct event *first, **last;
};

/* Opens a client. Returns NULL with an exception. */
struct core *core_open(const char *url, bool has_loop);
void core_unref(struct core *core);
/* Begins a call of the library. Returns false, with an exception, if the client is closed or
 * belongs to the parent process. */
bool core_enter(struct core *core);
void core_leave(struct core *core);
/* Ends parked callers, waits for calls to end, closes. HF_TIMEOUT: calls did not end in time. */
hf_status core_close(struct core *core, int64_t timeout_ms);
bool core_is_open(const struct core *core);
void core_park(struct core *core, struct parked *parked, hf_lease *lease);
void core_unpark(struct core *core, struct parked *parked);
/* Posts an event for the lease that `ticket` names; safe after the core has been closed. */
void core_post(uintptr_t ticket, enum event_kind kind, hf_status status);
/* The argument of a callback: which client, which lease. Nothing that could be freed too early. */
uintptr_t core_ticket(const struct core *core, uint32_t id);
/* The descriptor that an event loop polls; with has_loop only between enter and leave. */
int core_event_fd(const struct core *core);
/* Returns all events so far, oldest first; the caller frees them. */
struct event *core_take_events(struct core *core);
/* Returns one event, if it is there and its status is HF_OK; the caller frees it. */
struct event *core_take_event(struct core *core, enum event_kind kind, uint32_t id);
/* Waits for that event for so many microseconds, and reads replies meanwhile. Needs has_loop. */
enum nearby {
    NEARBY_NOTHING = 0,
    NEARBY_DONE = 1,   /* the event came, with HF_OK, and is taken */
    NEARBY_OTHERS = 2, /* there are other events; a failure of this one is among them */
    NEARBY_DONE_AND_OTHERS = NEARBY_DONE | NEARBY_OTHERS
};
enum nearby core_await_event(struct core *core, enum event_kind kind, uint32_t id,
                             long microseconds);

/* ---- Leases ---- */

struct lease {
    PyObject_HEAD struct core *core;
    hf_lease *hf;    /* NULL: released */
    hf_lease *ended; /* released; the last call inside frees it */
    unsigned calls;  /* threads inside a call with the handle; guarded by the GIL */
    PyObject *name;
    uint64_t token;
    uint32_t id;
};

struct module_types {
    PyTypeObject *client, *lease;
    PyObject *make_error; /* (code, text, holder | None) -> exception */
};
extern struct module_types types;

extern PyType_Spec client_spec, lease_spec;

/* Makes a lease without a handle. */
struct lease *lease_new(struct core *core, PyObject *name, uint32_t id);

/* ---- Errors and values ---- */

/* Returns how many forks lie between this process and the one that loaded the module. */
unsigned long fork_generation(void);
int core_watch_forks(void);

/* Raises an exception, and returns NULL. */
PyObject *fail(hf_status status, const char *text);
/* Raises an exception that has the holder in the way, and returns NULL. */
PyObject *fail_with(hf_status status, const char *text, struct holder *holder);
/* Raises the exception for the status of the call that has just ended, and returns NULL. */
PyObject *fail_now(hf_status status);
/* Returns a dict, or None if nobody is known; NULL with an exception. */
PyObject *holder_as_dict(struct holder *holder);
/* Returns None, or raises the exception for the status of the call that has just ended. */
PyObject *none_or_fail(hf_status status);

/* Reads seconds, a number or a timedelta, as milliseconds, rounded up; None becomes `none`. Returns
 * -1 with an exception. */
int read_ms(PyObject *value, const char *what, int64_t none, int64_t *ms);
/* Reads a whole number of 32 bits; whether its value makes sense is for the library to say. Returns
 * -1 with an exception. */
int read_count(PyObject *value, const char *what, uint32_t *count);
/* Returns a row as a dict; NULL with an exception. */
PyObject *row_as_dict(const struct hf_row *row);
