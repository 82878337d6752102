/*
 * Writing records where the plain paths do not: into the next segment, with escapes, or not at all.
 *
 * A place in a ring is reserved in one instruction and filled afterwards; a signal handler in between may go through
 * whole segments. The controller therefore leaves a full segment alone while a reserved place in it is still zero.
 */
#include "agent.h"

static char *data_of(uint32_t ring)
{
    return sg_rings_place(ring, sg_rings[ring].data_at);
}

static struct sg_segment *segments_of(uint32_t ring)
{
    return sg_rings_place(ring, sg_rings[ring].segments_at);
}

static char *segment_start(uint32_t ring, uint32_t segment)
{
    return data_of(ring) + (uint64_t)(segment - 1) * sg_rings[ring].segment_size;
}

/* What a position says: the segment it lies in (index + 1; 0: none), and how many places are left there. */
static uint32_t segment_of(uint32_t ring, uint64_t position, uint64_t *left)
{
    const struct sg_rings *rings = &sg_rings[ring];
    uint64_t count = position >> 48, address = position & 0xffffffffffff;
    *left = count < SG_PLACES_END ? SG_PLACES_END - 1 - count : 0;
    if (!address)
        return 0; /* SG_NO_PLACE, counted up; what it says of places is 0 */
    uint64_t beyond = count < SG_PLACES_END ? 0 : count - (SG_PLACES_END - 1);
    uint64_t end = address + *left * SG_RECORD_SIZE - beyond * SG_RECORD_SIZE;
    uint64_t offset = end - (uint64_t)data_of(ring);
    return offset <= (uint64_t)rings->segments * rings->segment_size ? (uint32_t)(offset / rings->segment_size) : 0;
}

static void close_segment(struct sg_thread *thread, uint32_t ring, uint64_t used)
{
    struct sg_ring *own = &thread->rings[ring];
    struct sg_segment *segment = &segments_of(ring)[own->segment - 1];
    segment->used = (uint32_t)used;
    own->segment = 0;
    own->position = SG_NO_PLACE;
    uint32_t full = sg_rings[ring].policy == SG_POLICY_OVERWRITE ? SG_SEGMENT_KEPT : SG_SEGMENT_FULL;
    __atomic_store_n(&segment->state, full, __ATOMIC_RELEASE);
    sg_ring_bell(ring);
}

/* Hands over what a thread has written so far, for each recorder. Signals are blocked, or the thread is dead. */
void sg_ring_close(struct sg_thread *thread)
{
    for (uint32_t ring = 0; ring < SG_RECORDERS; ring++) {
        if (!thread->rings[ring].segment)
            continue;
        uint64_t left;
        segment_of(ring, thread->rings[ring].position, &left);
        close_segment(thread, ring, sg_rings[ring].segment_size - left * SG_RECORD_SIZE);
    }
}

/* A segment that is this thread's from now on: its state is OWNED already, and it is all zero. */
static void begin(struct sg_thread *thread, uint32_t ring, uint32_t index)
{
    struct sg_ring *own = &thread->rings[ring];
    struct sg_segment *segment = &segments_of(ring)[index];
    segment->thread = thread->index;
    segment->pid = thread->shared->pid;
    segment->sequence = own->sequence++;
    segment->opened = sg_ticks();
    segment->used = 0;
    segment->without_call = 0;
    own->segment = index + 1;
    uint64_t count = SG_PLACES_END - 1 - sg_rings[ring].segment_size / SG_RECORD_SIZE;
    own->position = count << 48 | (uint64_t)segment_start(ring, index + 1);
}

static int claim_one(struct sg_segment *segment, uint32_t from)
{
    return segment->state == from && sg_swap(&segment->state, from, SG_SEGMENT_OWNED);
}

/* The lowest that is free: recycled memory is in core and near, fresh pages cost more than the record. */
static int claim_free(struct sg_thread *thread, uint32_t ring)
{
    struct sg_segment *segments = segments_of(ring);
    for (uint32_t i = 0; segments && i < sg_rings[ring].segments; i++)
        if (claim_one(segments + i, SG_SEGMENT_FREE)) {
            begin(thread, ring, i);
            return 1;
        }
    return 0;
}

/* Some of a segment's places hold no call of their own: escapes, and calls of nobody. One addition, whatever signals come. */
static void note_without_call(uint32_t ring, uint32_t segment, uint64_t places)
{
    if (places)
        __asm__ volatile("add %1, %0" : "+m"(segments_of(ring)[segment - 1].without_call) : "r"((uint32_t)places) : "cc");
}

/*
 * How many calls a segment holds, those included that a signal handler has kept from being written. It is not looked through
 * for that: its memory has left the caches long ago.
 */
static uint64_t calls_in(const struct sg_segment *segment)
{
    return segment->used / SG_RECORD_SIZE - segment->without_call;
}

/* The instruction and not a loop: a segment's worth of 8-byte stores costs each of its records a nanosecond. */
static void clear(void *memory, uint64_t bytes)
{
    uint64_t words = bytes / 8;
    __asm__ volatile("rep stosq" : "+D"(memory), "+c"(words) : "a"(0) : "memory");
}

/* The oldest full segment of this thread; of its process where it has none (index + 1; 0: nobody has one). */
static uint32_t oldest_kept(const struct sg_thread *thread, uint32_t ring)
{
    const struct sg_segment *segments = segments_of(ring);
    uint32_t own = 0, any = 0;
    for (uint32_t i = 0; segments && i < sg_rings[ring].segments; i++) {
        const struct sg_segment *segment = &segments[i];
        if (segment->state != SG_SEGMENT_KEPT || segment->pid != thread->shared->pid)
            continue;
        if (segment->thread == thread->index && (!own || segment->sequence < segments[own - 1].sequence))
            own = i + 1;
        if (!any || segment->opened < segments[any - 1].opened)
            any = i + 1;
    }
    return own ? own : any;
}

static void count_dropped(struct sg_thread *thread, uint32_t ring, uint64_t calls)
{
    if (ring)
        sg_losses_of(thread, sg_slot_of_ring(ring))->dropped += calls;
    else
        thread->shared->dropped += calls;
}

/* Overwrite policy: the oldest records make room for the newest, and are counted by who drops them. Those of other
   processes are the controller's when they end, so they are left alone. */
static int claim_oldest(struct sg_thread *thread, uint32_t ring)
{
    struct sg_segment *segments = segments_of(ring);
    uint32_t oldest;
    do {
        oldest = oldest_kept(thread, ring);
        if (!oldest)
            return 0;
    } while (!claim_one(&segments[oldest - 1], SG_SEGMENT_KEPT)); /* another thread was faster */
    count_dropped(thread, ring, calls_in(&segments[oldest - 1]));
    clear(segment_start(ring, oldest), sg_rings[ring].segment_size);
    begin(thread, ring, oldest - 1);
    return 1;
}

/* Block policy: sleeps until the controller has freed a segment. A controller that is gone ends the recording. */
static int claim_after_waiting(struct sg_thread *thread, uint32_t ring)
{
    struct sg_rings *rings = &sg_rings[ring];
    uint32_t heartbeat = 0, still = 0;
    while (rings->recording && segments_of(ring)) {
        uint32_t seen = __atomic_load_n(&rings->freed, __ATOMIC_ACQUIRE);
        if (claim_free(thread, ring))
            return 1;
        if (sg_threads_sweep(thread, 0xffffffff))
            continue;
        __atomic_fetch_add(&rings->waiters, 1, __ATOMIC_SEQ_CST);
        sg_futex_wait(&rings->freed, seen, 50000000);
        __atomic_fetch_sub(&rings->waiters, 1, __ATOMIC_SEQ_CST);
        if (sg_controller_gone(ring, &heartbeat, &still))
            rings->recording = 0;
    }
    return 0;
}

/* Replaces the full segment `full` (index + 1; 0: there was none). 0: the record is to be dropped. */
static int next_segment(struct sg_thread *thread, uint32_t ring, uint32_t full, int may_wait)
{
    const struct sg_rings *rings = &sg_rings[ring];
    struct sg_ring *own = &thread->rings[ring];
    uint64_t signals = sg_signals_block();
    int usable = 1;
    if (own->segment != full)
        goto out; /* a signal handler has replaced it already */
    if (full)
        close_segment(thread, ring, rings->segment_size);
    uint32_t freed = rings->freed;
    if (!rings->recording)
        usable = 0;
    else if (own->freed_seen == freed || !claim_free(thread, ring)) { /* none was free, and none has become so */
        own->freed_seen = freed;
        usable = rings->policy == SG_POLICY_OVERWRITE           ? claim_oldest(thread, ring)
                 : rings->policy == SG_POLICY_BLOCK && may_wait ? claim_after_waiting(thread, ring)
                                                                : 0;
    }
    if (!usable)
        own->position = SG_NO_PLACE; /* the count of vain tries must not run over */
out:
    sg_signals_restore(signals);
    return usable;
}

/* Whether there is certainly no room, known without a search: dropping a record must not cost more than writing it. */
static int known_full(const struct sg_ring *own, const struct sg_rings *rings)
{
    return !own->segment && (!rings->recording || (rings->policy == SG_POLICY_DROP && own->freed_seen == rings->freed));
}

/* Fills the last places of a segment, too few for what was to be written, with calls of nobody. */
static void pad(uint64_t position, uint64_t places)
{
    uint64_t *record = (uint64_t *)(position & 0xffffffffffff);
    for (; places; places--) {
        *record++ = 0;
        *record++ = 1ull << SG_FUNCTION_BITS | SG_FUNCTION_NONE;
    }
}

static uint64_t *reserve(struct sg_thread *thread, uint32_t ring, uint32_t places, int may_wait)
{
    struct sg_ring *own = &thread->rings[ring];
    for (;;) {
        uint64_t at = own->position, left;
        if (known_full(own, &sg_rings[ring])) {
            sg_swap_own(&own->position, at, SG_NO_PLACE);
            return 0;
        }
        at = SG_PLACE_ONE * places;
        __asm__ volatile("xadd %0, %1" : "+r"(at), "+m"(own->position) : : "memory", "cc");
        uint32_t segment = segment_of(ring, at, &left);
        if (places <= left) {
            note_without_call(ring, segment, places - 1);
            return (uint64_t *)(at & 0xffffffffffff);
        }
        pad(at, left);
        note_without_call(ring, segment, left);
        if (!next_segment(thread, ring, segment, may_wait))
            return 0;
    }
}

static int is_calling(const struct sg_thread *thread)
{
    const struct sg_thread *word = sg_thread_word();
    return word == thread || (word == SG_THREAD_SHARED && thread->tid == (uint32_t)sg_kernel0(KERNEL_gettid));
}

/* Writes one record with the escapes it needs for the recorder of these rings, or counts it as dropped. `start` is q0,
   `duration` is in ticks; `values` are `words` words of captured arguments and results. */
void sg_record_values(struct sg_thread *thread, uint32_t ring, const struct sg_record *what, const uint64_t *values, uint32_t words)
{
    uint64_t duration = what->duration;
    uint32_t kind = what->kind;
    int is_long = duration >> SG_DURATION_BITS != 0;
    uint32_t places = 1 + (uint32_t)is_long + (kind != SG_KIND_RETURNED) + (words ? 1 + (words + 1) / 2 : 0);
    int own = is_calling(thread); /* on behalf of a dead thread nobody may wait: the lock is held */
    uint64_t *record = reserve(thread, ring, places, own);
    if (!record) {
        count_dropped(thread, ring, 1);
        return;
    }
    if (is_long) {
        *record++ = duration;
        *record++ = SG_ESCAPE_LONG;
        duration = (1ull << SG_DURATION_BITS) - 1;
    }
    if (kind != SG_KIND_RETURNED) {
        *record++ = 0;
        *record++ = (uint64_t)kind << SG_FUNCTION_BITS | SG_ESCAPE_KIND;
    }
    if (words) {
        *record++ = 0;
        *record++ = (uint64_t)((words + 1) / 2) << SG_FUNCTION_BITS | SG_ESCAPE_VALUES;
        for (uint32_t i = 0; i < words; i++)
            *record++ = values[i];
        if (words % 2)
            *record++ = 0;
    }
    *record++ = what->start;
    *record++ = duration << SG_FUNCTION_BITS | what->function;
}
