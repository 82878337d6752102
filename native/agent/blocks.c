/* The pool of frames: blocks are handed to threads, taken back from dead ones, and sorted out in a forked child. */
#include "agent.h"

struct sg_block sg_blocks[SG_BLOCKS];

/* Owns blocks whose thread is gone (or is the parent process's) while calls may still return through them. */
#define ORPHANED ((struct sg_thread *)2)

/* Where calls that a forked child inherited are "open": its returns find function 0 here and record nothing. */
static struct sg_open inherited_call;

static uint32_t search_at;

static uint64_t depth_of(const struct sg_frame *frame)
{
    return (frame->bias + sg_arena->tick_base) >> SG_START_BITS;
}

/*
 * Whether frames that are too deep for the recorder that the plain paths serve are marked as that. They are not as soon as
 * others use the process: then the slow path looks at its limit, and frames are for all.
 */
int sg_frames_are_cut(void)
{
    return sg_settings.depth_limit && (sg_registry->live & 1) && !(sg_registry->limited & 1);
}

/* What a frame is that has been marked as too deep, when it is no longer: free, or the end of its block or of its holes. */
uint64_t sg_frame_uncut(const struct sg_frame *frame)
{
    const struct sg_frame *start = frame - 1;
    while (!sg_is_sentinel(start) || start + start->original < frame)
        start--;
    return start + start->original == frame ? SG_SLOT_END : (uint64_t)SG_SLOT_FREE;
}

/* No frame is too deep any more. Called while no thread stands in the agent. */
void sg_frames_without_limit(void)
{
    for (uint32_t i = 0; i < SG_FRAMES; i++)
        if (sg_blocks[i / SG_BLOCK_FRAMES].owner && sg_frames[i].slot == SG_SLOT_CUT)
            sg_frames[i].slot = sg_frame_uncut(&sg_frames[i]);
}

/*
 * Makes frames[0] a start sentinel above `below` (0: nothing below) and frames[1] to frames[count - 1] free. Frames that
 * would be too deep to be traced are marked; what follows the last one must be no free frame.
 */
void sg_frames_prepare(struct sg_frame *frames, uint32_t count, struct sg_frame *below)
{
    uint64_t depth = below ? depth_of(below) + (below->site != 0) : 0;
    uint64_t limit = sg_frames_are_cut() ? sg_settings.depth_limit : ~0ull;
    for (uint32_t i = 1; i < count; i++, depth++) {
        frames[i].bias = ((depth < 0xffff ? depth : 0xffff) << SG_START_BITS) - sg_arena->tick_base;
        frames[i].slot = depth >= limit ? SG_SLOT_CUT : (uint64_t)SG_SLOT_FREE;
    }
    frames[0].bias = frames[1].bias;
    frames[0].site = 0;
    frames[0].target = (uint64_t)below;
    frames[0].original = count;
    frames[0].slot = below && sg_in_flight(below->slot) ? below->slot : (uint64_t)SG_SLOT_START;
}

static void prepare_block(uint32_t block, struct sg_frame *below)
{
    struct sg_frame *frames = sg_block_frames(block);
    struct sg_open *open = sg_open_calls + (sg_blocks[block].chunk - 1) * SG_BLOCK_FRAMES;
    for (uint32_t i = 0; i < SG_BLOCK_FRAMES; i++)
        frames[i] = (struct sg_frame){.open = open + i, .site = sg_site_of(frames + i)};
    sg_frames_prepare(frames, SG_BLOCK_FRAMES - 1, below);
    frames[SG_BLOCK_FRAMES - 1].slot = frames[SG_BLOCK_FRAMES - 2].slot == SG_SLOT_CUT ? SG_SLOT_CUT : SG_SLOT_END;
}

static uint32_t take_chunk(uint32_t thread)
{
    for (uint32_t i = 0; i < sg_arena->chunks; i++) {
        if (sg_chunks[i].state == 0 && sg_swap(&sg_chunks[i].state, 0, 1)) {
            sg_chunks[i].thread = thread;
            return i + 1;
        }
    }
    return 0;
}

static void give_back(uint32_t block)
{
    uint32_t chunk = sg_blocks[block].chunk;
    if (chunk) {
        struct sg_open *open = sg_open_calls + (chunk - 1) * SG_BLOCK_FRAMES;
        for (uint32_t i = 0; i < SG_BLOCK_FRAMES; i++)
            open[i].function = open[i].start = 0;
        __atomic_store_n(&sg_chunks[chunk - 1].state, 0, __ATOMIC_RELEASE);
    }
    sg_blocks[block] = (struct sg_block){0};
}

/* Whether a frame that nobody owns may still be returned to: its slot holds its site. */
static int awaited(struct sg_frame *frame)
{
    uint64_t held, slot = frame->slot;
    if (!sg_in_flight(slot) || !frame->original || sg_is_sentinel(frame))
        return 0;
    if (sg_settings.stacks_are_copied)
        return 1;
    return sg_peek(slot, &held) && held == sg_site_return(frame);
}

static int any_awaited(uint32_t block)
{
    struct sg_frame *frames = sg_block_frames(block);
    for (uint32_t i = 1; i < SG_BLOCK_FRAMES - 1; i++)
        if (awaited(frames + i))
            return 1;
    return 0;
}

/* Frees a block of which no frame is awaited any more. */
static void give_back_left(struct sg_thread *thread, uint32_t block)
{
    for (uint32_t i = 1; sg_registry->with_instances && i < SG_BLOCK_FRAMES - 1; i++)
        sg_users_over(thread, sg_block_frames(block) + i);
    give_back(block);
}

static uint32_t find_free(struct sg_thread *thread)
{
    uint32_t usable = sg_settings.frame_limit ? sg_settings.frame_limit / SG_BLOCK_FRAMES : SG_BLOCKS;
    if (usable > SG_BLOCKS)
        usable = SG_BLOCKS;
    for (uint32_t i = 0; i < usable; i++) {
        uint32_t block = search_at++ % usable;
        if (sg_blocks[block].owner == ORPHANED && !any_awaited(block))
            give_back_left(thread, block);
        if (!sg_blocks[block].owner)
            return block + 1;
    }
    return 0;
}

/*
 * Gives a thread one more block, to be used above the frame `below` (0: its first). Returns its index + 1, or 0 if there is
 * none. Called with the lock held.
 */
uint32_t sg_block_take(struct sg_thread *thread, struct sg_frame *below)
{
    uint32_t found = find_free(thread);
    uint32_t chunk = found ? take_chunk(thread->index) : 0;
    if (!chunk)
        return 0;
    sg_blocks[found - 1] = (struct sg_block){.owner = thread, .chunk = chunk};
    prepare_block(found - 1, below);
    if (thread->newest_block)
        sg_blocks[thread->newest_block - 1].next = found;
    else
        thread->first_block = found;
    thread->newest_block = found;
    return found;
}

/* A thread has died. Calls in flight on its own stack were left with it; a coroutine's may yet return elsewhere. */
void sg_blocks_reclaim(struct sg_thread *dead)
{
    uint32_t next;
    for (uint32_t at = dead->first_block; at; at = next) {
        struct sg_frame *frames = sg_block_frames(at - 1);
        int keep = 0;
        next = sg_blocks[at - 1].next;
        for (uint32_t i = 1; i < SG_BLOCK_FRAMES - 1; i++) {
            struct sg_frame *frame = frames + i;
            if (!sg_in_flight(frame->slot) || sg_is_sentinel(frame)) {
                if (sg_registry->with_instances)
                    sg_users_over(dead, frame); /* it has died while it noticed the call's end */
                continue;
            }
            if (awaited(frame) && !sg_on_own_stack(dead, frame->slot))
                keep = 1;
            else
                sg_frame_unwound(dead, frame);
        }
        sg_blocks[at - 1].owner = ORPHANED;
        sg_blocks[at - 1].inherited = 1;
        if (!keep)
            give_back(at - 1);
    }
}

/* Sorts out the parent's blocks in a forked child; `former` is where the forking thread's state was, if that is known. */
void sg_blocks_after_fork(struct sg_thread *former)
{
    for (uint32_t i = 0; i < SG_BLOCKS; i++) {
        struct sg_block *block = &sg_blocks[i];
        if (!block->owner)
            continue;
        block->chunk = 0; /* the parent's */
        int possible = block->owner == former || block->owner == ORPHANED || former == SG_THREAD_SHARED;
        if (possible && any_awaited(i)) {
            block->owner = ORPHANED;
            block->inherited = 1;
            for (uint32_t frame = 0; frame < SG_BLOCK_FRAMES; frame++)
                sg_block_frames(i)[frame].open = &inherited_call;
        } else {
            give_back(i);
        }
    }
}

/*
 * All threads begin anew, with a new arena. What is still in flight belongs to a recording that is over: it returns
 * without a record, and nothing of it leads to the former arena or to the function records of former hooks any more.
 */
void sg_blocks_renew(void)
{
    static struct sg_function former_function;
    search_at = 0; /* the same blocks again: their pages are in use already */
    for (uint32_t i = 0; i < SG_BLOCKS; i++) {
        struct sg_block *block = &sg_blocks[i];
        if (!block->owner)
            continue;
        block->chunk = 0; /* the former arena's */
        if (!any_awaited(i)) {
            give_back(i);
            continue;
        }
        *block = (struct sg_block){.owner = ORPHANED, .inherited = 1};
        for (uint32_t frame = 0; frame < SG_BLOCK_FRAMES; frame++) {
            sg_block_frames(i)[frame].open = &inherited_call;
            sg_block_frames(i)[frame].function = &former_function;
        }
    }
}
