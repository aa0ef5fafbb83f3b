/* addon_job.c - calls that wait for a server: list, show, close. The library has threads for them,
 * so libuv's pool, on which fs and dns depend, never waits for a server that hangs. */
#include "addon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job_row {
    struct hf_row row; /* its texts are those below */
    char name[HF_NAME_MAX + 1], host[256], label[HF_LABEL_MAX + 1];
};

struct addon_job {
    bool closes;
    struct addon_client *client;
    napi_deferred deferred;
    hf_status status;
    char text[ERROR_TEXT_MAX];
    struct job_row *rows;
    size_t count;
};

/* ---- On a thread of the library ---- */

static void note_outcome(struct addon_job *job, hf_status status)
{
    job->status = status;
    snprintf(job->text, sizeof job->text, "%s", status == HF_OK ? "" : hf_error_text());
}

static void keep_row(struct job_row *kept, const struct hf_row *row)
{
    kept->row = *row;
    snprintf(kept->name, sizeof kept->name, "%s", row->name);
    snprintf(kept->host, sizeof kept->host, "%s", row->host);
    snprintf(kept->label, sizeof kept->label, "%s", row->label);
}

static void on_rows(void *arg, hf_status outcome, const struct hf_row *rows, size_t count)
{
    struct addon_job *job = arg;

    note_outcome(job, outcome);
    job->rows = count ? malloc(count * sizeof *job->rows) : NULL;
    if (count && !job->rows)
        job->status = HF_NO_MEMORY;
    for (size_t i = 0; job->rows && i < count; i++)
        keep_row(&job->rows[i], &rows[i]);
    job->count = job->rows ? count : 0;
    addon_event_post_job(job->client, job);
}

static void on_closed(void *arg, hf_status outcome)
{
    struct addon_job *job = arg;

    note_outcome(job, outcome);
    addon_client_closed(job->client, job);
}

/* ---- On the JavaScript thread ---- */

static napi_value rows_array(napi_env env, struct addon_job *job)
{
    napi_value array = NULL;

    napi_create_array_with_length(env, job->count, &array);
    for (size_t i = 0; i < job->count; i++) {
        struct job_row *kept = &job->rows[i];
        kept->row.name = kept->name;
        kept->row.host = kept->host;
        kept->row.label = kept->label;
        napi_set_element(env, array, (uint32_t)i, addon_row(env, &kept->row));
    }
    return array;
}

hf_status addon_job_status(const struct addon_job *job)
{
    return job->status;
}

void addon_job_free(struct addon_job *job)
{
    free(job->rows);
    free(job);
}

void addon_job_settle(napi_env env, struct addon_job *job)
{
    struct addon_client *client = job->client;

    if (job->closes && job->status != HF_TIMEOUT)
        addon_client_forget(env, client);
    if (job->status == HF_OK)
        napi_resolve_deferred(env, job->deferred, rows_array(env, job));
    else
        napi_reject_deferred(env, job->deferred, addon_error(env, job->status, job->text));
    addon_client_unref(client);
}

static struct addon_job *job_new(napi_env env, bool closes, struct addon_client *client)
{
    struct addon_job *job = calloc(1, sizeof *job);

    if (!job) {
        addon_throw(env, HF_NO_MEMORY, "no memory for a call");
        return NULL;
    }
    job->closes = closes;
    job->client = client;
    addon_client_ref(client);
    return job;
}

/* Returns the promise of a job that was started, and keeps the process alive for it; or throws. */
static napi_value promise_of(napi_env env, struct addon_job *job, hf_status status)
{
    napi_value promise = NULL;

    if (status != HF_OK) {
        addon_client_unref(job->client);
        addon_job_free(job);
        return addon_throw(env, status, hf_error_text());
    }
    napi_create_promise(env, &job->deferred, &promise);
    addon_event_wait(env, job->client);
    return promise;
}

/* list(client, text, exact) -> promise of rows; exact: the text is a name, else a prefix */
napi_value addon_list(napi_env env, napi_callback_info info)
{
    napi_value arguments[3];
    char text[HF_NAME_MAX + 2] = "";
    bool exact = false;

    addon_arguments(env, info, 3, arguments);
    struct addon_client *client = addon_external(env, arguments[0]);
    if (!client)
        return NULL;
    if (!addon_client_is_open(client))
        return addon_throw(env, HF_CLOSED, "the client is closed");
    napi_get_value_bool(env, arguments[2], &exact);
    addon_string(env, arguments[1], text, sizeof text);
    struct addon_job *job = job_new(env, false, client);
    if (!job)
        return NULL;
    hf_status status = exact ? hf_show_start(client->hf, text, on_rows, job)
                             : hf_list_start(client->hf, *text ? text : NULL, on_rows, job);
    return promise_of(env, job, status);
}

/* close(client, timeout) -> promise */
napi_value addon_close(napi_env env, napi_callback_info info)
{
    napi_value arguments[2];

    addon_arguments(env, info, 2, arguments);
    struct addon_client *client = addon_external(env, arguments[0]);
    if (!client)
        return NULL;
    if (!client->hf)
        return addon_throw(env, HF_CLOSED, "the client is closed");
    struct addon_job *job = job_new(env, true, client);
    if (!job)
        return NULL;
    addon_client_closing(client);
    addon_event_stop_loop(env, client);
    hf_status status =
        hf_close_start(client->hf, addon_integer(env, arguments[1], 1000), on_closed, job);
    if (status != HF_OK)
        addon_client_closed(client, NULL);
    return promise_of(env, job, status);
}
