/* started_calls.c - the calls that start a list, a show or a close and return at once. Each gets a
 * thread of its own while the engine works: such calls are rare, and the thread that runs callbacks
 * must not wait for a server. */
#include "client.h"

#include "base/error.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct started_call {
    struct hf_client *client;
    int which; /* scope, as in struct admin_target */
    hf_rows_fn *done;
    void *arg;
    hf_status status;
    struct error_state error;
    struct started_call *next; /* next in the queue of ended calls */
    struct hf_row *rows;       /* their texts are copies */
    size_t count, room;
    bool out_of_memory;
    char name[]; /* name, or prefix */
};

/* ---- On the call's own thread ---- */

static bool make_room(struct started_call *call)
{
    if (call->count < call->room)
        return true;

    size_t room = call->room ? 2 * call->room : 16;
    struct hf_row *rows = realloc(call->rows, room * sizeof *rows);
    if (!rows)
        return false;
    call->rows = rows;
    call->room = room;
    return true;
}

static void keep_row(void *arg, const struct hf_row *row)
{
    assert(row->name && row->host && row->label);

    struct started_call *call = arg;
    size_t name = strlen(row->name) + 1, host = strlen(row->host) + 1,
           label = strlen(row->label) + 1;
    char *texts = make_room(call) ? malloc(name + host + label) : NULL;
    if (!texts) {
        call->out_of_memory = true;
        return;
    }

    struct hf_row *kept = &call->rows[call->count++];
    *kept = *row;
    kept->name = memcpy(texts, row->name, name);
    kept->host = memcpy(texts + name, row->host, host);
    kept->label = memcpy(texts + name + host, row->label, label);
}

/* Puts an ended call into the queue. After client_exit() hf_close may free the client. */
static void put_ended(struct started_call *call)
{
    assert(!call->next);

    struct hf_client *client = call->client;
    small_mutex_lock(&client->lock);
    *(client->ended_first ? &client->ended_last->next : &client->ended_first) = call;
    client->ended_last = call;
    small_mutex_unlock(&client->lock);

    if (client->own_callbacks)
        background_wake_loop(client);
    else
        background_wake(client);
    client_exit(client);
}

static void *run_call(void *arg)
{
    struct started_call *call = arg;
    call->status = client_list(call->client, call->which, call->name, keep_row, call);
    if (call->status == HF_OK && call->out_of_memory)
        call->status = error_set(HF_NO_MEMORY, "%s: no memory to list", call->client->url);
    error_save(&call->error);
    put_ended(call);
    return NULL;
}

/* ---- On the thread that runs callbacks ---- */

static void free_call(struct started_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        free((char *)(uintptr_t)call->rows[i].name);
    free(call->rows);
    free(call);
}

bool started_calls_run(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    struct started_call *call = client->ended_first;
    if (call)
        client->ended_first = call->next;
    small_mutex_unlock(&client->lock);
    if (!call)
        return false;

    bool is_done = call->status == HF_OK;
    if (!is_done)
        error_restore(&call->error);
    call->done(call->arg, call->status, is_done ? call->rows : NULL, is_done ? call->count : 0);
    free_call(call);
    return true;
}

/* ---- On the caller's thread ---- */

/* Starts a detached thread that blocks all signals: they belong to the application. */
static int start_thread(void *(*run)(void *), void *arg)
{
    sigset_t all, old;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

hf_status client_list_start(struct hf_client *client, int which, const char *name, hf_rows_fn *done,
                            void *arg)
{
    assert(name && done);

    size_t len = strlen(name);
    struct started_call *call = calloc(1, sizeof *call + len + 1);
    if (!call)
        return error_set(HF_NO_MEMORY, "%s: no memory for a call", client->url);

    call->client = client;
    call->which = which;
    call->done = done;
    call->arg = arg;
    memcpy(call->name, name, len + 1);
    /* keeps the client open for the thread; put_ended() ends that */
    client_stay_open(client);
    int error = start_thread(run_call, call);
    if (!error)
        return HF_OK;

    client_exit(client);
    free_call(call);
    return error_set(HF_NO_MEMORY, "%s: cannot start a thread: %s", client->url, strerror(error));
}

/* ---- Closing ---- */

struct started_close {
    struct hf_client *client;
    int64_t timeout_ms;
    hf_closed_fn *done;
    void *arg;
};

static void *run_close(void *arg)
{
    struct started_close call = *(struct started_close *)arg;
    free(arg);
    call.done(call.arg, client_close(call.client, call.timeout_ms));
    return NULL;
}

hf_status client_close_start(struct hf_client *client, int64_t timeout_ms, hf_closed_fn *done,
                             void *arg)
{
    struct started_close *call = malloc(sizeof *call);
    if (!call)
        return error_set(HF_NO_MEMORY, "%s: no memory to close it", client->url);

    *call = (struct started_close){client, timeout_ms, done, arg};
    client_refuse_calls(client);
    int error = start_thread(run_close, call);
    if (!error)
        return HF_OK;

    free(call);
    return error_set(HF_NO_MEMORY, "%s: cannot start a thread: %s", client->url, strerror(error));
}
