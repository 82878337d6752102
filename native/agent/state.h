/*
 * The agent's private state: what fork must copy, and what only one thread touches.
 *
 * Shadow frames and return sites are two arrays of the same stride: frame k and site k lie a constant apart. Frames are
 * handed to threads in blocks of SG_BLOCK_FRAMES. In a block, frame 0 is the start sentinel and the last one the end
 *
 *     ┌──────────┬─────────┬─────────┬─── ─── ───┬─────────┬────────┐
 *     │ START    │ frame 1 │ frame 2 │           │frame 30 │ END    │   slot: START's is SG_SLOT_START, or that of the
 *     └──────────┴─────────┴─────────┴─── ─── ───┴─────────┴────────┘   block below; END's is SG_SLOT_END
 *                     ▲ thread->top: the newest frame in use
 *
 * sentinel; neither is ever used for a call. The start sentinel's target is the frame below, from which its thread stepped up
 * to it. Where coroutines leave long-lived calls all over the blocks, the holes between those are used again: a run of
 * frames that have returned becomes a small block, its first frame the start sentinel, and what follows it the end (holes.c).
 *
 * A free frame has slot SG_SLOT_FREE. Taking a frame is one instruction (cmpxchg of top), giving it back another one, so a
 * signal handler may come between any two instructions and even switch stacks: it finds top right, and a frame that is
 * taken but not yet written has SG_SLOT_FREE, which is never judged dead (design: section 2). Whoever frees another's frame
 * claims it first by exchanging its slot: of two that a handler has interleaved, one succeeds.
 *
 * An entry that was interrupted before its exchange may take the frame above `top` long after it found it free, if top is
 * the same again. That frame is free then, too, or belongs to nobody: above every frame that can be the newest lies a free
 * one, the end of its block or the spare one at the end of its holes.
 */
#ifndef SHADOWGRAPH_STATE_H
#define SHADOWGRAPH_STATE_H

#include "shadowgraph/records.h"

#define SG_FRAMES 131072
#define SG_BLOCKS (SG_FRAMES / 32)
#define SG_STRIDE 64
#define SG_STRIDE_SHIFT 6
#define SG_SITE_RETURN 11 /* offset in a site of the instruction behind its call */

/* struct sg_frame */
#define FRAME_ORIGINAL 0
#define FRAME_TARGET 8
#define FRAME_SLOT 16
#define FRAME_BIAS 24
#define FRAME_OPEN 32
#define FRAME_SITE 40
#define FRAME_FUNCTION 48

#define SG_SLOT_FREE -1   /* free, or taken and not yet written */
#define SG_SLOT_START -2  /* below the first frame of a thread */
#define SG_SLOT_END 0     /* no frame here: the block ends */
#define SG_SLOT_RETURNED 1 /* the call is over, but newer frames lie above: freed when they are gone */
#define SG_SLOT_CLAIMED 3 /* dead, its record is being written */
#define SG_SLOT_CUT 4     /* no frame here: deeper calls are not traced (--depth) */
#define SG_SLOT_IDLE 5     /* a start sentinel whose frames are all free: the thread has stepped back from it */
#define SG_SLOT_LAST_MARK 15

/* struct sg_thread */
#define THREAD_TOP 0
#define THREAD_POSITION 16 /* of the first of its rings */
#define THREAD_SHARED 272
#define THREAD_CONTROL_BLOCK 280
#define THREAD_PAGES 288
#define THREAD_INDEX 304
#define THREAD_TID 308
#define THREAD_WAY_OUT 368
#define RING_SHIFT 5

/*
 * Where the next record of a thread goes, one word, so that one xadd reserves a place and tells whether there is one:
 *
 *      63        48 47                                            0
 *     ┌────────────┬───────────────────────────────────────────────┐
 *     │ count      │ address in the ring segment                   │
 *     └────────────┴───────────────────────────────────────────────┘
 *
 * count is SG_PLACES_END - 1 when the segment is full: a sum whose sign is set has reserved nothing. Whoever compared the
 * address with the segment's end would compare with that of the next one if a signal handler came between.
 */
#define SG_PLACES_END 0x8000
#define SG_PLACE_ONE 0x1000000000010 /* SG_RECORD_SIZE, and one in the count */
#define SG_NO_PLACE 0x8000000000000000 /* there is no segment */
#define SG_AHEAD 512 /* bytes: 32 records take longer than a line on its way */

/* struct sg_shared_thread, struct sg_function (asserted against arena.h) */
#define SHARED_PID 4
#define SHARED_TID 8
#define SHARED_MISSED 32
#define SHARED_DROPPED 40
#define SHARED_FILTERED 48
#define SHARED_INSIDE 80
#define INSIDE_SHIFT 7
#define FUNCTION_ENTER 0
#define FUNCTION_BODY 8
#define FUNCTION_ID 16
#define FUNCTION_FLAGS 20
#define FUNCTION_USERS 24
#define FUNCTION_CELL 40
#define FUNCTION_RECORDERS 48
#define FUNCTION_CALLERS 56
#define OPEN_FUNCTION 8
#define OPEN_USERS 16
#define OPEN_EPOCH 24
#define OPEN_USERS_MARK 0xa000000000000000 /* SG_OPEN_SLOW, SG_OPEN_USERS */
#define OPEN_MEASURED_BIT 60
#define OPEN_FRUGAL_BIT 58
#define OPEN_FRUGAL_MARK 0x0400000000000000
#define REGISTRY_SIDE 0
#define REGISTRY_EPOCH 8
#define REGISTRY_ARMED 16
#define REGISTRY_WITH_DATA 56
#define REGISTRY_COUNTERS 72
#define REGISTRY_RECORDERS 80
#define REGISTRY_SIMPLE 696
#define REGISTRY_MEASURES 704
#define OPEN_RECORDERS_BIT 59
#define USERS_MASK 63
#define USERS_SHIFT 6
#define LOSSES_MISSED 0
#define LOSSES_SHIFT 5
#define REGISTRY_TIMED 688
#define REGISTRY_TIMED_AT_EXIT 720
#define REGISTRY_TOLD_TIME 728
#define REGISTRY_TOLD_AT_ENTRY 736
#define REGISTRY_TOLD_AT_EXIT 744
#define REGISTRY_QUICK_FRUGAL 752
#define REGISTRY_LOUD_AT_ENTRY 760
#define REGISTRY_LOUD_AT_EXIT 768
#define REGISTRY_SINCE 776
#define REGISTRY_USERS 1288

/* struct sg_user, struct sg_call (include/shadowgraph/ops.h) */
#define USER_DATA_SIZE 12
#define USER_ENTRY 24
#define USER_EXIT 32
#define USER_CODE_NUMBER 120
#define HANDLERS_EPOCH 0
#define HANDLERS_NUMBERS 8
#define USER_SIZE 304
#define CALL_FUNCTION 0
#define CALL_ARGUMENTS 8
#define CALL_STACK 16
#define CALL_RESULT 32
#define CALL_RETURN_ADDRESS 48
#define CALL_DATA 56
#define CALL_DATA_SIZE 64
#define CALL_TIME 72
#define CALL_DURATION 80
#define CALL_THREAD 88
#define CALL_PROCESS 92
#define CALL_SIZE 128

/* What users keep of a call: areas.c */
#define AREA_SHIFT 5 /* an area for each frame, so many times larger */
#define AREA_EPOCH 0
#define AREA_HOLDING 8
#define AREA_USED 16
#define AREA_AT 18
#define AREA_FIRST 160

/* In a thread's way_out: the handler there is frugal, all other registers are as they were (frugal.h). */
#define WAY_OUT_FRUGAL 1

#define FLAG_VECTORS 512
#define PAGE_CELLS_SHIFT 9
#define PAGE_CELLS_MASK 511

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

#include "shadowgraph/arena.h"

struct sg_frame {
    uint64_t original; /* the return address that the caller pushed; 0: reached by a tail call; in a start sentinel: how
                          many frames it stands for, itself included */
    uint64_t target;   /* the body that the site calls; once that runs, of a frame that others share by tail calls: the newest
                          of them, each of which points to the one before (frames.c); in a start sentinel: the frame below */
    uint64_t slot;     /* address of the slot, or a mark */
    uint64_t bias;     /* (depth << 48) - tick base: ticks + bias is q0 of the record */
    struct sg_open *open;
    uint64_t site; /* 0: a start sentinel */
    struct sg_function *function;
    uint64_t unused;
};

/* What a thread has of one recorder's ring segments. */
struct sg_ring {
    uint64_t position; /* where the next record goes: see above */
    uint64_t sequence;
    uint32_t segment;    /* index + 1; 0: none */
    uint32_t freed_seen; /* no segment was free when the controller had freed so often */
    uint64_t unused;
};

struct __attribute__((aligned(16))) sg_thread { /* top and steps are exchanged together (cmpxchg16b) */
    struct sg_frame *top;
    uint64_t steps; /* how often top has gone from block to block: changed together with it */
    struct sg_ring rings[SG_RECORDERS];
    struct sg_shared_thread *shared;
    uint64_t control_block; /* fs base */
    uint64_t **pages; /* its pages of cells, by number; 0: none yet */
    uint64_t magic; /* a forked child finds 0 here (MADV_WIPEONFORK) */
    uint32_t index, tid;
    uint32_t first_block, newest_block; /* the blocks it has, linked by next; index + 1 */
    uint32_t holes;                     /* about so many frames have returned below newer ones */
    uint32_t harvest_at;                /* block to look for holes next; index + 1 */
    uint32_t exhausted;                 /* looked in vain for a frame so often since */
    uint64_t stack_low, stack_high;       /* the thread's own stack, once somebody had to know */
    struct sg_frame *alive_elsewhere;     /* newest frame, looked at already: alive on another stack */
    uint64_t alive_since;                 /* its start: the frame may be another call's by now */
    uint64_t way_out[7];                  /* of the handler that it runs, if that faults: see running.S */
    uint32_t shared_calls;                /* made while others had the same TLS */
    uint32_t began_sharing;               /* the one whose TLS it was first */
};

struct sg_block {
    struct sg_thread *owner; /* 0: free */
    uint32_t next;      /* in the owner's list; index + 1 */
    uint32_t above;     /* the block that was used above this one the last time; index + 1 */
    uint32_t chunk;     /* its part of the table of open calls; index + 1 */
    uint32_t inherited; /* calls of the parent process, or of a dead thread, that may still return */
};

#define SAME(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #member)
SAME(struct sg_frame, original, FRAME_ORIGINAL);
SAME(struct sg_frame, target, FRAME_TARGET);
SAME(struct sg_frame, slot, FRAME_SLOT);
SAME(struct sg_frame, bias, FRAME_BIAS);
SAME(struct sg_frame, open, FRAME_OPEN);
SAME(struct sg_frame, site, FRAME_SITE);
SAME(struct sg_frame, function, FRAME_FUNCTION);
_Static_assert(sizeof(struct sg_frame) == SG_STRIDE, "frames and sites have one stride (R15)");
SAME(struct sg_thread, top, THREAD_TOP);
SAME(struct sg_thread, rings, THREAD_POSITION);
_Static_assert(offsetof(struct sg_ring, position) == 0 && sizeof(struct sg_ring) == 1 << RING_SHIFT, "found by the paths");
SAME(struct sg_thread, shared, THREAD_SHARED);
SAME(struct sg_thread, control_block, THREAD_CONTROL_BLOCK);
SAME(struct sg_thread, pages, THREAD_PAGES);
SAME(struct sg_thread, index, THREAD_INDEX);
SAME(struct sg_thread, tid, THREAD_TID);
SAME(struct sg_thread, way_out, THREAD_WAY_OUT);
SAME(struct sg_shared_thread, pid, SHARED_PID);
SAME(struct sg_shared_thread, tid, SHARED_TID);
SAME(struct sg_shared_thread, inside, SHARED_INSIDE);
_Static_assert(SG_INSIDE_SHIFT == INSIDE_SHIFT && SG_INSIDE_SLOT >= SG_USERS, "known to frugal.h");
SAME(struct sg_shared_thread, missed, SHARED_MISSED);
SAME(struct sg_shared_thread, dropped, SHARED_DROPPED);
SAME(struct sg_shared_thread, filtered, SHARED_FILTERED);
_Static_assert(sizeof(struct sg_shared_thread) == 128, "two cache lines");
SAME(struct sg_function, enter, FUNCTION_ENTER);
SAME(struct sg_function, body, FUNCTION_BODY);
SAME(struct sg_function, id, FUNCTION_ID);
SAME(struct sg_function, flags, FUNCTION_FLAGS);
SAME(struct sg_function, users, FUNCTION_USERS);
SAME(struct sg_function, cell, FUNCTION_CELL);
SAME(struct sg_function, recorders, FUNCTION_RECORDERS);
SAME(struct sg_function, callers, FUNCTION_CALLERS);
SAME(struct sg_open, function, OPEN_FUNCTION);
SAME(struct sg_open, users, OPEN_USERS);
SAME(struct sg_open, epoch, OPEN_EPOCH);
SAME(struct sg_losses, missed, LOSSES_MISSED);
_Static_assert(sizeof(struct sg_losses) == 1 << LOSSES_SHIFT && SG_USERS == 1 << USERS_SHIFT, "found by frugal.h");
_Static_assert((SG_OPEN_SLOW | SG_OPEN_USERS) == OPEN_USERS_MARK, "known to the entry paths");
_Static_assert(SG_OPEN_MEASURED == 1ull << OPEN_MEASURED_BIT, "known to the return path");
_Static_assert(SG_OPEN_FRUGAL == OPEN_FRUGAL_MARK && SG_OPEN_FRUGAL == 1ull << OPEN_FRUGAL_BIT, "known to both");
SAME(struct sg_registry, side, REGISTRY_SIDE);
SAME(struct sg_registry, epoch, REGISTRY_EPOCH);
SAME(struct sg_registry, armed, REGISTRY_ARMED);
SAME(struct sg_registry, with_data, REGISTRY_WITH_DATA);
SAME(struct sg_registry, counters, REGISTRY_COUNTERS);
SAME(struct sg_registry, recorders, REGISTRY_RECORDERS);
SAME(struct sg_registry, simple, REGISTRY_SIMPLE);
SAME(struct sg_registry, measures, REGISTRY_MEASURES);
_Static_assert(SG_OPEN_RECORDERS == 1ull << OPEN_RECORDERS_BIT && SG_USERS == USERS_MASK + 1, "known to the paths");
SAME(struct sg_registry, timed, REGISTRY_TIMED);
SAME(struct sg_registry, told_at_entry, REGISTRY_TOLD_AT_ENTRY);
SAME(struct sg_registry, told_at_exit, REGISTRY_TOLD_AT_EXIT);
SAME(struct sg_registry, quick_frugal, REGISTRY_QUICK_FRUGAL);
SAME(struct sg_registry, loud_at_entry, REGISTRY_LOUD_AT_ENTRY);
SAME(struct sg_registry, loud_at_exit, REGISTRY_LOUD_AT_EXIT);
SAME(struct sg_registry, since, REGISTRY_SINCE);
SAME(struct sg_registry, timed_at_exit, REGISTRY_TIMED_AT_EXIT);
SAME(struct sg_registry, told_time, REGISTRY_TOLD_TIME);
SAME(struct sg_registry, users, REGISTRY_USERS);
SAME(struct sg_user, data_size, USER_DATA_SIZE);
SAME(struct sg_user, entry, USER_ENTRY);
SAME(struct sg_user, exit, USER_EXIT);
SAME(struct sg_user, code_number, USER_CODE_NUMBER);
SAME(struct sg_handlers_here, epoch, HANDLERS_EPOCH);
SAME(struct sg_handlers_here, numbers, HANDLERS_NUMBERS);
_Static_assert(sizeof(struct sg_user) == USER_SIZE, "known to the paths of frugal handlers");
_Static_assert(SG_FLAG_VECTORS == FLAG_VECTORS && SG_PAGE_CELLS == 1 << PAGE_CELLS_SHIFT, "known to the entry paths");
_Static_assert(sizeof(struct sg_function) == SG_FUNCTION_RECORD_SIZE, "thunks point at these");
_Static_assert(sizeof(struct sg_segment) == 40, "scanned in bulk");
_Static_assert(SG_BLOCKS * SG_BLOCK_FRAMES == SG_FRAMES, "whole blocks");
#undef SAME

#define SG_HIDDEN __attribute__((visibility("hidden")))

extern struct sg_frame sg_frames[SG_FRAMES] SG_HIDDEN;
extern char sg_sites[] SG_HIDDEN;
extern struct sg_block sg_blocks[SG_BLOCKS] SG_HIDDEN;
extern struct sg_arena *sg_arena SG_HIDDEN;
extern struct sg_settings sg_settings;

/* Whose handlers are in this process. The controller writes it when they are. */
extern struct sg_handlers_here sg_handlers_here __attribute__((visibility("protected")));

/*
 * The word by which a thread finds its state: in static TLS, or, where a loader gives a library none after the start
 * (musl), the gs base. New threads inherit that: a state whose control block is another thread's is not ours.
 */
#ifdef SG_THREAD_BY_GS
static inline struct sg_thread *sg_thread_word(void)
{
    struct sg_thread *thread;
    __asm__ volatile("rdgsbase %0" : "=r"(thread));
    return thread;
}

static inline void sg_thread_set(struct sg_thread *thread)
{
    __asm__ volatile("wrgsbase %0" : : "r"(thread));
}
#else
extern __thread struct sg_thread *sg_thread SG_HIDDEN __attribute__((tls_model("initial-exec")));

static inline struct sg_thread *sg_thread_word(void)
{
    return sg_thread;
}

static inline void sg_thread_set(struct sg_thread *thread)
{
    sg_thread = thread;
}
#endif

static inline uint64_t sg_ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static inline uint32_t sg_block_of(const struct sg_frame *frame)
{
    return (uint32_t)(frame - sg_frames) / SG_BLOCK_FRAMES;
}

/* The address a return through this frame's slot goes to. */
static inline uint64_t sg_site_return(const struct sg_frame *frame)
{
    return (uint64_t)sg_sites + (uint64_t)(frame - sg_frames) * SG_STRIDE + SG_SITE_RETURN;
}
#endif
#endif
