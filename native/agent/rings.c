/*
 * Where the rings of each recorder lie in this process. Those of the first one are part of the arena as it was mapped at the
 * start. Who comes later makes the arena's file longer; a process maps that part when it first records for it. It has no
 * descriptor of the file, and needs none: mremap of nothing makes another mapping of what is mapped already, and that may go
 * on behind it (mremap(2): old_size 0).
 */
#include "agent.h"

#define PAGE 4096ull
#define MAYMOVE 1

static struct {
    uint64_t generation; /* of the recorder for whom it is mapped; 0: nothing is */
    char *base;
    uint64_t size;
} mapped[SG_RECORDERS];

static uint32_t lock_word; /* not that of threads: rings are needed while it is held */

static char *map_part(uint64_t at, uint64_t size)
{
    uint64_t last = sg_arena->size - PAGE, whole = at + size - last;
    long address = sg_kernel6(KERNEL_mremap, (long)((char *)sg_arena + last), 0, (long)whole, MAYMOVE, 0, 0);
    if (address < 0)
        return 0;
    sg_kernel2(KERNEL_munmap, address, (long)(at - last)); /* what lies before is mapped elsewhere */
    sg_kernel3(KERNEL_madvise, address + (long)(at - last), (long)size, 16 /* MADV_DONTDUMP */);
    return (char *)address + (at - last);
}

/* Called when nobody has anything of a former recorder's in hand: its controller has seen to that (taking_over.py). */
static char *map_again(uint32_t ring, uint64_t generation)
{
    uint64_t signals = sg_signals_block();
    while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE))
        sg_kernel0(KERNEL_sched_yield);
    if (mapped[ring].generation != generation) {
        if (mapped[ring].base)
            sg_kernel2(KERNEL_munmap, mapped[ring].base, mapped[ring].size);
        mapped[ring].generation = 0;
        mapped[ring].size = sg_rings[ring].size;
        mapped[ring].base = map_part(sg_rings[ring].at, sg_rings[ring].size);
        __atomic_store_n(&mapped[ring].generation, mapped[ring].base ? generation : 0, __ATOMIC_RELEASE);
    }
    char *base = mapped[ring].base;
    __atomic_store_n(&lock_word, 0, __ATOMIC_RELEASE);
    sg_signals_restore(signals);
    return base;
}

/* The address of a place in the part of the file that belongs to these rings; 0 if that cannot be mapped. */
void *sg_rings_place(uint32_t ring, uint64_t at)
{
    const struct sg_rings *rings = &sg_rings[ring];
    if (rings->at < sg_arena->size)
        return (char *)sg_arena + at;
    uint64_t generation = __atomic_load_n(&rings->generation, __ATOMIC_ACQUIRE);
    char *base = __atomic_load_n(&mapped[ring].generation, __ATOMIC_ACQUIRE) == generation ? mapped[ring].base : map_again(ring, generation);
    return base ? base + (at - rings->at) : 0;
}

/* What lies in the file of an arena that is given up is mapped no more. */
void sg_rings_renew(void)
{
    for (uint32_t i = 0; i < SG_RECORDERS; i++) {
        if (mapped[i].base)
            sg_kernel2(KERNEL_munmap, mapped[i].base, mapped[i].size);
        mapped[i].generation = mapped[i].size = 0;
        mapped[i].base = 0;
    }
}

/* Another thread may have been in here when this process was forked. */
void sg_rings_after_fork(void)
{
    lock_word = 0;
}

/*
 * Another recorder takes over these rings, while every thread stands still and none stands in the agent: nobody has a segment
 * of the former one any more, and what the plain paths have seen to for that is over. The controller takes calls in flight off
 * the former recorder.
 */
__attribute__((visibility("default"))) long sg_rings_reset(uint64_t ring)
{
    for (uint32_t i = 0; i < sg_arena->threads; i++)
        if (sg_threads[i].magic == SG_THREAD_MAGIC)
            sg_threads[i].rings[ring] = (struct sg_ring){.position = SG_NO_PLACE, .freed_seen = ~0u};
    if (ring)
        return 0;
    sg_minimal_ticks = 0;
    sg_settings.depth_limit = 0;
    sg_frames_without_limit();
    return 0;
}
