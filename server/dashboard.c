/* dashboard.c - serves the page and its files. The policy forbids the page to load anything from
 * elsewhere. */
#include "dashboard.h"
#include "routes.h"

static const char POLICY[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void answer_asset(struct exchange *x, const struct asset *asset)
{
    exchange_field(x, "Content-Security-Policy", POLICY);
    exchange_field(x, "X-Content-Type-Options", "nosniff");
    exchange_field(x, "Referrer-Policy", "no-referrer");
    exchange_field(x, "Cache-Control", "no-cache");
    exchange_answer(x, 200, asset->type, asset->text, asset->len);
}

void route_page(struct exchange *x)
{
    answer_asset(x, &ASSETS[0]);
}

void route_asset(struct exchange *x)
{
    const struct asset *asset = &ASSETS[0];

    while (asset->name && !piece_is(x->arguments[0], asset->name))
        asset++;

    if (asset->name)
        answer_asset(x, asset);
    else
        answer_problem(x, 404, "not_found", "no such file", NULL);
}
