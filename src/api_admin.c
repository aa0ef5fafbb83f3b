/* api_admin.c - public functions for admin: list, show, watch, history, diagnose, break, resize,
 * and care of the library. They check arguments and call the client. */
#include "api_checks.h"

/* Checks client and name, and enters the client if the status is HF_OK. */
static hf_status enter_named(hf_client *client, const char *name)
{
    size_t len = 0;
    if (!client)
        return missing("client");
    hf_status status = check_name("name", name, &len);
    return status == HF_OK ? client_enter(client) : status;
}

hf_status hf_list(hf_client *client, const char *prefix, hf_row_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");

    hf_status status = check_text("prefix", prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    status = client_list(client, LIST_PREFIX, prefix ? prefix : "", fn, arg);
    client_exit(client);
    return status;
}

hf_status hf_list_start(hf_client *client, const char *prefix, hf_rows_fn *done, void *arg)
{
    if (!client || !done)
        return missing(client ? "done" : "client");

    hf_status status = check_text("prefix", prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    status = client_list_start(client, LIST_PREFIX, prefix ? prefix : "", done, arg);
    client_exit(client);
    return status;
}

hf_status hf_show_start(hf_client *client, const char *name, hf_rows_fn *done, void *arg)
{
    hf_status status = done ? enter_named(client, name) : missing("done");
    if (status != HF_OK)
        return status;
    status = client_list_start(client, LIST_ONE, name, done, arg);
    client_exit(client);
    return status;
}

static hf_status check_page(const struct hf_page *page)
{
    if (page->names > HF_PAGE_MAX)
        return error_set(HF_INVALID, "page.names: %u is more than %d; use 0 for all", page->names,
                         HF_PAGE_MAX);

    hf_status status = check_text("page.prefix", page->prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = check_text("page.except", page->except, HF_NAME_MAX);
    return status == HF_OK ? check_text("page.after", page->after, HF_NAME_MAX) : status;
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

hf_status hf_list_page(hf_client *client, const struct hf_page *given, hf_row_fn *fn, void *arg,
                       char *next)
{
    struct hf_page page;
    if (!client || !given)
        return missing(client ? "page" : "client");
    if (!fn || !next)
        return missing(fn ? "next" : "fn");

    *next = 0;
    hf_status status = copy_sized("page", &page, sizeof page, given);
    if (status == HF_OK)
        status = check_page(&page);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    struct name_range range = {.after = text_or_empty(page.after),
                               .except = text_or_empty(page.except),
                               .most = page.names,
                               .foreign = page.foreign};
    status = client_list_page(client, text_or_empty(page.prefix), &range, fn, arg, next);
    client_exit(client);
    return status;
}

static hf_status list_one(hf_client *client, int which, const char *name, hf_row_fn *fn, void *arg)
{
    hf_status status = fn ? enter_named(client, name) : missing("fn");
    if (status != HF_OK)
        return status;
    status = client_list(client, which, name, fn, arg);
    client_exit(client);
    return status;
}

hf_status hf_show(hf_client *client, const char *name, hf_row_fn *fn, void *arg)
{
    return list_one(client, LIST_ONE, name, fn, arg);
}

hf_status hf_show_servers(hf_client *client, const char *name, hf_server_state_fn *fn, void *arg)
{
    hf_status status = fn ? enter_named(client, name) : missing("fn");
    if (status != HF_OK)
        return status;

    if (client->type->list_servers)
        status = client_show_servers(client, name, fn, arg);
    client_exit(client);
    return status;
}

hf_status hf_history(hf_client *client, const char *name, hf_row_fn *fn, void *arg)
{
    return list_one(client, LIST_HISTORY, name, fn, arg);
}

hf_status hf_diagnose(hf_client *client, hf_finding_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");

    hf_status status = client_enter(client);
    if (status != HF_OK)
        return status;

    if (client->type->diagnose)
        status = client_diagnose(client, fn, arg);
    client_exit(client);
    return status;
}

typedef hf_status library_fn(struct hf_client *client, hf_finding_fn *fn, void *arg);

static hf_status care_for_library(hf_client *client, library_fn *care, hf_finding_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");

    hf_status status = client_enter(client);
    if (status != HF_OK)
        return status;

    if (client->type->care_for_library)
        status = care(client, fn, arg);
    else
        status = error_set(HF_UNSUPPORTED, "%s: the engine %s runs no library inside its servers",
                           client->url, client->type->name);
    client_exit(client);
    return status;
}

hf_status hf_library_install(hf_client *client, hf_finding_fn *fn, void *arg)
{
    return care_for_library(client, client_install_library, fn, arg);
}

hf_status hf_library_prune(hf_client *client, hf_finding_fn *fn, void *arg)
{
    return care_for_library(client, client_prune_libraries, fn, arg);
}

hf_status hf_watch(hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg)
{
    if (!client || !fn)
        return missing(client ? "fn" : "client");

    hf_status status = check_text("prefix", prefix, HF_NAME_MAX);
    if (status == HF_OK)
        status = client_enter(client);
    if (status != HF_OK)
        return status;

    if (callbacks_run_here(client))
        status = error_set(HF_INVALID, "hf_watch: a callback must not wait");
    else
        status = client_watch(client, prefix ? prefix : "", fn, arg);
    client_exit(client);
    return status;
}

hf_status hf_break(hf_client *client, const char *name, uint64_t token, const char *reason)
{
    hf_status status = check_text("reason", reason, HF_NAME_MAX);
    if (status == HF_OK && !token)
        status = error_set(HF_INVALID, "token: 0 is not a token");
    if (status == HF_OK)
        status = enter_named(client, name);
    if (status != HF_OK)
        return status;

    if (client->limits.offers & ENGINE_CAN_BREAK)
        status = client_break(client, name, token, reason);
    else
        status = error_set(HF_UNSUPPORTED, "%s: the engine %s cannot break a hold", name,
                           client->type->name);

    client_exit(client);
    return status;
}

hf_status hf_resize(hf_client *client, const char *name, uint32_t capacity)
{
    hf_status status = check_range("capacity", capacity, 1, HF_CAPACITY_MAX);
    if (status == HF_OK)
        status = enter_named(client, name);
    if (status != HF_OK)
        return status;

    if (client->limits.offers & ENGINE_CAN_RESIZE)
        status = client_resize(client, name, capacity);
    else
        status =
            error_set(HF_UNSUPPORTED, "%s: the engine %s cannot resize", name, client->type->name);

    client_exit(client);
    return status;
}
