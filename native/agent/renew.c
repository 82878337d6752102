/* Another recording in a process that the agent is in already. */
#include "agent.h"

#define ERROR_EBUSY 16

/* What controllers have left in the process: theirs alone to read and write. */
struct sg_kept sg_kept[SG_KEPT_LIMIT];

/*
 * Called by the controller while every thread of the process stands still and none stands in the agent or in a thunk, in
 * place of sg_start: a new arena and new threads' states, from sg_settings. The controller then clears the threads' words,
 * which lead to states that are gone. Calls in flight go on to return through their sites. Returns what sg_start returns;
 * below 0, nothing has changed.
 */
__attribute__((visibility("default"))) long sg_renew(void)
{
    struct sg_arena *arena = sg_arena;
    struct sg_thread *threads = sg_threads;
    uint64_t threads_size = sizeof(struct sg_thread) * (arena->threads + 1), arena_size = arena->size;
    if (sg_threads_locked())
        return -ERROR_EBUSY;
    long fd = sg_start();
    if (fd < 0)
        return fd;
    sg_blocks_renew();
    sg_kernel2(KERNEL_munmap, arena, arena_size);
    sg_kernel2(KERNEL_munmap, threads, threads_size);
    return fd;
}
