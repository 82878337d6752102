/*
 * Kernel threads that share one thread-local storage: clone with CLONE_VM, without CLONE_SETTLS and CLONE_VFORK, makes a
 * child that finds all that is found through it where its parent does. From then on the word that leads to the state
 * says SG_THREAD_SHARED, every traced call takes the slow path, and a thread finds its state by its thread id. Once such a
 * thread has no children, it has its storage for itself again.
 */
#include "agent.h"

#define LOOK_EVERY 256 /* calls, for whether there are children still: reading /proc costs as much as twenty of them */

static struct sg_thread *last_found[8]; /* by thread id: the table is long */

static int is_sharer(const struct sg_thread *thread, uint32_t tid)
{
    return thread && thread->magic == SG_THREAD_MAGIC && thread->tid == tid && thread->control_block == sg_control_block();
}

static struct sg_thread *find(uint32_t tid)
{
    struct sg_thread **known = &last_found[tid % 8];
    if (is_sharer(*known, tid))
        return *known;
    for (uint32_t i = 0; i < sg_arena->threads; i++)
        if (is_sharer(&sg_threads[i], tid))
            return *known = &sg_threads[i];
    return 0;
}

/* /proc/self/task/TID/children lists them; where the kernel does not have that file, there may always be some. */
static int has_children(uint32_t tid)
{
    char path[48], first;
    sg_write_task_path(path, tid, "/children");
    long fd = sg_kernel3(KERNEL_open, path, 0x80000 /* O_CLOEXEC */, 0);
    if (fd < 0)
        return 1;
    long got = sg_kernel3(KERNEL_read, fd, &first, 1);
    sg_kernel1(KERNEL_close, fd);
    return got != 0;
}

/* What the children of a thread have left of themselves, now that they are gone. Called with the lock held. */
static void reclaim_others(const struct sg_thread *thread)
{
    for (uint32_t i = 0; i < sg_arena->threads; i++) {
        struct sg_thread *other = &sg_threads[i];
        if (other != thread && other->magic == SG_THREAD_MAGIC && other->control_block == thread->control_block)
            sg_thread_reclaim(i);
    }
}

/* The state of the calling thread, made if there is none yet; 0 if there can be none. Signals are blocked. */
struct sg_thread *sg_thread_among_sharers(void)
{
    uint32_t tid = (uint32_t)sg_kernel0(KERNEL_gettid);
    struct sg_thread *thread = find(tid);
    if (!thread || ++thread->shared_calls % LOOK_EVERY == 0) {
        uint64_t signals = sg_lock();
        if (!thread) {
            thread = sg_thread_make((uint32_t)sg_kernel0(KERNEL_getpid), tid);
        } else if (thread->began_sharing && !has_children(tid)) {
            reclaim_others(thread);
            sg_thread_set(thread);
        }
        sg_unlock(signals);
    }
    return thread;
}

/* A clone with this thread's TLS is about to be made. */
void sg_thread_share(void)
{
    struct sg_thread *thread = sg_thread_here();
    if (!thread)
        return;
    thread->began_sharing |= sg_thread_word() == thread;
    sg_thread_set(SG_THREAD_SHARED);
}
