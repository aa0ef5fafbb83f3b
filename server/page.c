/* page.c - hands out the page and its parts. Nothing on it may come from elsewhere. */
#include "page.h"
#include "routes.h"

static const char POLICY[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void page_get(struct exchange *x)
{
    const struct asset *asset = &ASSETS[0];
    if (x->arguments[0].len > 0)
        while (asset->name && !piece_is(x->arguments[0], asset->name))
            asset++;
    if (!asset->name) {
        answer_problem(x, 404, "not_found", "there is nothing here", NULL);
        return;
    }
    exchange_field(x, "Content-Security-Policy", "%s", POLICY);
    exchange_field(x, "X-Content-Type-Options", "nosniff");
    exchange_field(x, "Referrer-Policy", "no-referrer");
    exchange_field(x, "Cache-Control", "no-cache");
    exchange_answer(x, 200, asset->type, asset->text, asset->len);
}
