/*
 * The depth of each call among those of its own recorder. What the agent writes counts the calls in flight of all who use
 * the process: where others have hooked functions in between, depths have gaps, which would look like missing callers.
 */
#include "columns.h"

#include "nesting.h"

struct sg_depths {
    struct nest nest; /* labels are depths without gaps */
};

struct sg_depths *sg_depths_create(void)
{
    struct sg_depths *depths = calloc(1, sizeof(*depths));

    if (depths && !nest_init(&depths->nest)) {
        free(depths);
        return NULL;
    }
    return depths;
}

void sg_depths_destroy(struct sg_depths *depths)
{
    nest_deinit(&depths->nest);
    free(depths);
}

/* Another thread begins. */
void sg_depths_clear(struct sg_depths *depths)
{
    nest_clear(&depths->nest);
}

/* Closes the gaps in the depths of the calls order[0..count), which are in the order of their starts; 0: out of memory. */
int32_t sg_depths_close(struct sg_depths *depths, struct sg_call *calls, const uint32_t *order, int64_t count)
{
    struct nest *nest = &depths->nest;

    for (int64_t at = 0; at < count; at++) {
        struct sg_call *call = &calls[order[at]];
        int64_t end = call->start + call->duration;
        uint32_t caller = nest_caller(nest, call->start, end, call->depth);
        uint32_t depth = caller ? nest->calls[caller].label + 1 : 0;

        if (depth > NEST_DEEPEST)
            depth = NEST_DEEPEST;
        if (!nest_enter(nest, call->start, end, call->depth, depth))
            return 0;
        call->depth = (uint16_t)depth;
    }
    return 1;
}
