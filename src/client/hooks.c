/* hooks.c - what hangs on the outcome of a lease, lent from a pool: most leases need none, or not for long. */
#include "client.h"

#include "base/why.h"

#include <stdlib.h>

hf_status hf_hooks_need(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (lease->hooks)
        return HF_OK;
    hf_latch_lock(&client->lock);
    struct hf_hooks *hooks = client->unused_hooks;
    if (hooks)
        client->unused_hooks = hooks->next;
    hf_latch_unlock(&client->lock);
    if (!hooks && !(hooks = malloc(sizeof *hooks)))
        return hf_why(HF_NO_MEMORY, "%s: no memory for a lease", lease->ask.name);
    *hooks = (struct hf_hooks){0};
    lease->hooks = hooks;
    return HF_OK;
}

void hf_hooks_give(struct hf_lease *lease)
{
    hf_group_leave(lease);
    lease->hooks->next = lease->client->unused_hooks;
    lease->client->unused_hooks = lease->hooks;
    lease->hooks = NULL;
}

void hf_hooks_done(struct hf_lease *lease)
{
    lease->hooks->done = NULL;
    if (lease->hooks->on_lost || lease->hooks->group)
        return;
    hf_latch_lock(&lease->client->lock);
    hf_hooks_give(lease);
    hf_latch_unlock(&lease->client->lock);
}

void hf_hooks_free(struct hf_client *client)
{
    for (struct hf_hooks *hooks = client->unused_hooks, *next; hooks; hooks = next) {
        next = hooks->next;
        free(hooks);
    }
}
