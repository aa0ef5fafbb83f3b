/* name_page.c - a page of names, in a sorted array. That is fast enough: a page is short, and most
 * names of a long list sort behind the page's last one, so one comparison rejects them. */
#include "name_page.h"

#include "error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool name_range_has(const struct name_range *range, const char *name)
{
    size_t except = strlen(range->except);
    bool is_left_out = except > 0 && strncmp(name, range->except, except) == 0;

    return !is_left_out && strcmp(name, range->after) > 0;
}

hf_status name_page_open(struct name_page *page, const struct name_range *range)
{
    assert(range->most > 0 && range->after && range->except);
    *page = (struct name_page){.range = *range};

    page->slot = calloc(range->most, sizeof *page->slot);
    page->order = calloc(range->most, sizeof *page->order);
    if (page->slot && page->order)
        return HF_OK;

    name_page_free(page);
    return error_set(HF_NO_MEMORY, "no memory for a page of %u names", range->most);
}

void name_page_free(struct name_page *page)
{
    free(page->slot);
    free(page->order);
    *page = (struct name_page){0};
}

const char *name_page_at(const struct name_page *page, uint32_t place)
{
    assert(place < page->count);
    return page->slot[page->order[place]];
}

/* Returns the position of the first name that is not before `name`. */
static uint32_t place_of(const struct name_page *page, const char *name)
{
    uint32_t low = 0, high = page->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(name_page_at(page, middle), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns a slot for a new name: on a full page that of the last name. */
static uint32_t take_slot(struct name_page *page)
{
    if (page->count < page->range.most)
        return page->count++;
    page->has_more = true;
    return page->order[page->count - 1];
}

void name_page_add(struct name_page *page, const char *name, size_t len)
{
    char text[HF_NAME_MAX + 1];
    assert(len <= HF_NAME_MAX);
    memcpy(text, name, len);
    text[len] = 0;
    if (!name_range_has(&page->range, text))
        return;

    uint32_t place = place_of(page, text);
    if (place == page->range.most) {
        page->has_more = true;
        return;
    }
    if (place < page->count && strcmp(name_page_at(page, place), text) == 0)
        return;

    uint32_t slot = take_slot(page);
    memmove(page->order + place + 1, page->order + place,
            (page->count - 1 - place) * sizeof *page->order);
    page->order[place] = slot;
    memcpy(page->slot[slot], text, len + 1);
}

const char *name_page_end(const struct name_page *page)
{
    return page->has_more ? name_page_at(page, page->count - 1) : NULL;
}
