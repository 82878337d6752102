#include "model.h"

#include <stdlib.h>
#include <string.h>

static void *checked(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static struct shadow *new_shadow(void) { return checked(calloc(1, sizeof(struct shadow))); }

static void free_shadow(struct shadow *shadow)
{
    free(shadow->entries);
    free(shadow);
}

void model_init(struct model *model)
{
    model->current = new_shadow();
    model->others = NULL;
}

void model_free(struct model *model)
{
    free_shadow(model->current);
    while (model->others != NULL) {
        struct shadow *next = model->others->next;
        free_shadow(model->others);
        model->others = next;
    }
}

static void push(struct shadow *shadow, uint64_t address, uint64_t place)
{
    if (shadow->count == shadow->room) {
        shadow->room = shadow->room != 0 ? 2 * shadow->room : 64;
        shadow->entries = checked(realloc(shadow->entries, shadow->room * sizeof *shadow->entries));
    }
    shadow->entries[shadow->count++] = (struct entry){address, place};
}

static struct shadow *copied(const struct shadow *from)
{
    struct shadow *shadow = new_shadow();
    for (size_t k = 0; k < from->count; k++)
        push(shadow, from->entries[k].address, from->entries[k].place);
    return shadow;
}

void model_copy(struct model *to, const struct model *from)
{
    to->current = copied(from->current);
    to->others = NULL;
    for (const struct shadow *other = from->others; other != NULL; other = other->next) {
        struct shadow *shadow = copied(other);
        shadow->next = to->others;
        to->others = shadow;
    }
}

void model_call(struct model *model, uint64_t address, uint64_t place) { push(model->current, address, place); }

enum verdict model_return(struct model *model, uint64_t address)
{
    struct shadow *shadow = model->current;
    if (shadow->count == 0)
        return RETURN_UNKNOWN;
    if (shadow->entries[shadow->count - 1].address != address)
        return RETURN_MISMATCH;
    shadow->count--;
    return RETURN_MATCHES;
}

size_t model_unwind(struct model *model, uint64_t rsp)
{
    struct shadow *shadow = model->current;
    size_t before = shadow->count;
    while (shadow->count != 0 && shadow->entries[shadow->count - 1].place < rsp)
        shadow->count--;
    return before - shadow->count;
}

int model_is_left_behind(const struct model *model, uint64_t rsp)
{
    const struct shadow *shadow = model->current;
    return shadow->count != 0 && shadow->entries[shadow->count - 1].place < rsp;
}

void model_signal(struct model *model, uint64_t restorer, uint64_t place)
{
    push(model->current, 0, place);
    push(model->current, restorer, place);
}

void model_sigreturn(struct model *model)
{
    struct shadow *shadow = model->current;
    while (shadow->count != 0 && shadow->entries[--shadow->count].address != 0)
        continue;
}

static int continues(const struct shadow *shadow, uint64_t address, uint64_t place)
{
    const struct entry *top = shadow->count != 0 ? &shadow->entries[shadow->count - 1] : NULL;
    return top != NULL && top->address == address && top->place == place;
}

/* Whether the stack of `shadow` goes on shortly above `rsp`: the switch was to an outer frame of the same stack. */
static int goes_up(const struct shadow *shadow, uint64_t rsp)
{
    for (size_t k = shadow->count; k-- != 0;)
        if (shadow->entries[k].place >= rsp)
            return shadow->entries[k].place - rsp < 4096;
    return 0;
}

void model_switch(struct model *model, uint64_t address, uint64_t place)
{
    struct shadow **link = &model->others;
    while (*link != NULL && !continues(*link, address, place))
        link = &(*link)->next;
    struct shadow *found = *link;
    if (found != NULL) {
        *link = found->next;
        found->count--;
    } else if (goes_up(model->current, place + 8)) {
        model_unwind(model, place + 8);
        return;
    } else {
        found = new_shadow();
    }
    model->current->next = model->others;
    model->others = model->current;
    model->current = found;
}

uint64_t model_top(const struct model *model)
{
    const struct shadow *shadow = model->current;
    return shadow->count != 0 ? shadow->entries[shadow->count - 1].address : 0;
}
