/*
 * Using holes: frames whose calls are over while newer ones, of other stacks, are not.
 *
 * A thread that runs coroutines leaves their calls in flight all over its blocks. Without this it would run through the
 * whole pool while most of its frames have returned. A run of at least RUN holes becomes a small block of its own:
 *
 *     ─┬────────┬──────────┬──────┬──────┬───────┬────────┬─
 *      │ flight │ sentinel │ free │ free │ spare │ flight │     the spare one marks the end (state.h tells why it must be)
 *     ─┴────────┴──────────┴──────┴──────┴───────┴────────┴─
 *
 * When the thread steps back from it, it is holes again.
 */
#include "agent.h"

#define RUN 4
#define SOME_BLOCKS 4

/* Takes dead calls out of flight, wherever they lie in a block: they hide below living ones of other stacks. */
static void bury_the_dead(struct sg_thread *thread, struct sg_frame *frames, uint64_t slot)
{
    for (uint32_t i = 1; i < SG_BLOCK_FRAMES - 1; i++) {
        struct sg_frame *frame = frames + i;
        if (!sg_in_flight(frame->slot) || sg_is_sentinel(frame) || frame == thread->top || !sg_frame_dead(thread, frame, slot))
            continue;
        if (sg_frame_unwound(thread, frame)) {
            frame->slot = SG_SLOT_RETURNED;
            thread->holes++;
        }
    }
}

/* The longest run of holes in a block; its length, its first frame in `first`. */
static uint32_t longest_run(struct sg_frame *frames, const struct sg_frame *below, struct sg_frame **first)
{
    uint32_t longest = 0, length = 0;
    for (uint32_t i = 1; i < SG_BLOCK_FRAMES - 1; i++) {
        length = frames[i].slot == SG_SLOT_RETURNED && frames + i != below ? length + 1 : 0;
        if (length > longest) {
            longest = length;
            *first = frames + i + 1 - length;
        }
    }
    return longest;
}

/* Looks at one block, buries its dead if asked to, and gives back its longest run of holes if that is long enough. */
static uint32_t search(struct sg_thread *thread, uint32_t block, struct sg_frame *below, uint64_t slot, int bury, struct sg_frame **first)
{
    struct sg_frame *frames = sg_block_frames(block - 1);
    if (bury)
        bury_the_dead(thread, frames, slot);
    uint32_t found = longest_run(frames, below, first);
    return found >= RUN ? found : 0;
}

/*
 * Turns a run of holes of this thread into frames above `below`: the first that is found in the next few of its blocks, or
 * with `everywhere` in all of them, dead calls included. Returns the start sentinel, or 0. `slot` is that of the call that
 * needs a frame.
 */
struct sg_frame *sg_holes_use(struct sg_thread *thread, struct sg_frame *below, uint64_t slot, int everywhere)
{
    uint64_t signals = sg_signals_block();
    struct sg_frame *first = 0;
    uint32_t found = 0;
    uint32_t block = everywhere || !thread->harvest_at ? thread->first_block : thread->harvest_at;
    for (uint32_t i = 0; block && !found && (everywhere || i < SOME_BLOCKS); i++) {
        found = search(thread, block, below, slot, everywhere, &first);
        if (!found)
            block = sg_blocks[block - 1].next;
    }
    thread->harvest_at = block;
    if (found) {
        thread->holes -= found < thread->holes ? found : thread->holes;
        sg_frames_prepare(first, found - 1, below);
        first[found - 1].slot = first[found - 2].slot == SG_SLOT_CUT ? SG_SLOT_CUT : SG_SLOT_END;
    } else if (everywhere) {
        thread->holes = 0;
    }
    sg_signals_restore(signals);
    return found ? first : 0;
}

/* The thread has stepped back from a start sentinel: a whole block lies idle, a run is holes again. */
void sg_holes_give_back(struct sg_thread *thread, struct sg_frame *sentinel)
{
    uint64_t count = sentinel->original + 1; /* and the spare one */
    if ((sentinel - sg_frames) % SG_BLOCK_FRAMES == 0) {
        __atomic_store_n(&sentinel->slot, SG_SLOT_IDLE, __ATOMIC_RELEASE);
        return;
    }
    for (uint64_t i = 1; i < count; i++)
        sentinel[i].slot = SG_SLOT_RETURNED;
    thread->holes += (uint32_t)count;
    sentinel->site = sg_site_of(sentinel);
    __atomic_store_n(&sentinel->slot, SG_SLOT_RETURNED, __ATOMIC_RELEASE);
}
