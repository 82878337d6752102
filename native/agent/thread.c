/*
 * The state of each thread, reached through one word of static TLS: 0 in a new thread, 1 where several kernel threads have
 * the same TLS, else the address of a struct sg_thread. Index i of the private states goes with entry i of the shared table.
 */
#include "agent.h"

#ifndef SG_THREAD_BY_GS
__thread struct sg_thread *sg_thread;
#endif

static uint32_t lock_word;
static uint32_t sweep_at;
static uint32_t sweep_end; /* no thread of this process has an entry there or beyond */
static uint32_t process;   /* pid of the process whose private state this is */
static uint32_t *unforked; /* 1; lies with the threads' state, so that a forked child reads 0 (MADV_WIPEONFORK) */

/* Called before there is any thread's state. `mark` is in memory that fork wipes. */
void sg_threads_start(uint32_t *mark)
{
    process = (uint32_t)sg_kernel0(KERNEL_getpid);
    unforked = mark;
    *mark = 1;
}

/* The process whose frames these are. */
uint32_t sg_threads_process(void)
{
    return process;
}

/* Whether somebody is about to change the pool of blocks: asked while all threads stand still. */
int sg_threads_locked(void)
{
    return lock_word != 0;
}

/* Where each thread's word is, counted from its thread control block; 0 if it is the gs base. */
uint64_t sg_thread_place(void)
{
#ifdef SG_THREAD_BY_GS
    return 0;
#else
    uint64_t control_block;
    __asm__("mov %%fs:0, %0" : "=r"(control_block));
    return (uint64_t)&sg_thread - control_block;
#endif
}

/* Guards the pool of blocks and the reclaiming of dead threads. Signals are blocked while it is held: a handler must not
   wait for the thread it interrupted. */
uint64_t sg_lock(void)
{
    uint64_t signals = sg_signals_block();
    while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE))
        sg_kernel0(KERNEL_sched_yield);
    return signals;
}

void sg_unlock(uint64_t signals)
{
    __atomic_store_n(&lock_word, 0, __ATOMIC_RELEASE);
    sg_signals_restore(signals);
}

/* Notes which recorders have to take what a dead thread has left, or to tell of it, before its entry may be another one's. */
static int is_awaited(struct sg_shared_thread *dead)
{
    int any = 0;
    for (uint32_t ring = 0; ring < SG_RECORDERS; ring++) {
        dead->waits[ring] = sg_rings[ring].controller_pid != 0;
        any |= dead->waits[ring];
    }
    return any;
}

/* A thread is gone: its last records and its blocks become available. Called with the lock held. */
void sg_thread_reclaim(uint32_t index)
{
    struct sg_thread *dead = &sg_threads[index];
    if (dead->magic == SG_THREAD_MAGIC) {
        sg_blocks_reclaim(dead);
        sg_ring_close(dead);
        sg_cells_leave(index);
        dead->magic = 0;
    }
    sg_shared_threads[index].ended = sg_ticks();
    uint32_t state = is_awaited(&sg_shared_threads[index]) ? SG_THREAD_DEAD : SG_THREAD_FREE;
    __atomic_store_n(&sg_shared_threads[index].state, state, __ATOMIC_RELEASE);
    sg_ring_bells();
}

static int is_gone(const struct sg_shared_thread *shared)
{
    int gone = sg_kernel3(KERNEL_tgkill, shared->pid, shared->tid, 0) == -ERROR_ESRCH;
    if (gone)
        SG_BEHIND(&sg_shared_threads[shared - sg_shared_threads].tid);
    return gone;
}

/* Looks through the threads whose memory this is, among them clones with a process id of their own. */
static int sweep(uint32_t own_tid, uint32_t most, int (*over)(const struct sg_shared_thread *shared))
{
    int found = 0;
    uint32_t end = sweep_end, count = end < most ? end : most;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = sweep_at++ % end;
        const struct sg_shared_thread *shared = &sg_shared_threads[index];
        if (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) != SG_THREAD_LIVE || sg_threads[index].magic != SG_THREAD_MAGIC)
            continue;
        if (shared->tid == own_tid || over(shared)) {
            sg_thread_reclaim(index);
            found++;
        }
    }
    return found;
}

/* Looks at some threads of the table and reclaims those that have died; returns how many. */
int sg_threads_sweep(struct sg_thread *self, uint32_t most)
{
    uint64_t signals = sg_lock();
    int found = sweep(0, most, is_gone);
    (void)self;
    sg_unlock(signals);
    return found;
}

static char *append(char *at, const char *text)
{
    while (*text)
        *at++ = *text++;
    return at;
}

/* The path of a file in /proc/self/task/TID; room for 48 characters. */
void sg_write_task_path(char *path, uint32_t tid, const char *file)
{
    char digits[11] = {0};
    int first = 10;
    for (; tid || first == 10; tid /= 10)
        digits[--first] = (char)('0' + tid % 10);
    *append(append(append(path, "/proc/self/task/"), digits + first), file) = 0;
}

/*
 * Whether a thread is on its way out: pthread_join returns when the kernel has cleared its thread id, a little before the
 * thread is gone. Field 9 of /proc/self/task/TID/stat has PF_EXITING (4) by then (kernel/exit.c).
 */
static int is_leaving(const struct sg_shared_thread *shared)
{
    char path[48], text[256];
    sg_write_task_path(path, shared->tid, "/stat");
    long fd = sg_kernel3(KERNEL_open, path, 0x80000 /* O_CLOEXEC */, 0);
    if (fd < 0)
        return is_gone(shared);
    long got = sg_kernel3(KERNEL_read, fd, text, sizeof text);
    sg_kernel1(KERNEL_close, fd);
    long at = got > 0 ? got : 0;
    while (at > 0 && text[at - 1] != ')') /* the name before it may hold anything */
        at--;
    uint64_t flags = 0;
    for (int field = 2; at < got && field < 9; at++)
        field += text[at] == ' ';
    for (; at < got && text[at] >= '0' && text[at] <= '9'; at++)
        flags = flags * 10 + (uint64_t)(text[at] - '0');
    return (flags & 4) != 0;
}

/*
 * The first traced call in a forked child: its thread state reads as zeros. The private tables are the parent's copies:
 * other threads' blocks are free now, and calls of the thread that forked may still return here, silently. The lock may
 * have been held by a thread that does not exist in the child.
 */
static void after_fork(uint32_t pid, struct sg_thread *former)
{
    lock_word = 0;
    process = pid;
    *unforked = 1;
    sg_rings_after_fork();
    sg_blocks_after_fork(former);
}

static uint64_t awaited_by(const struct sg_shared_thread *shared)
{
    return __atomic_load_n((const uint64_t *)shared->waits, __ATOMIC_ACQUIRE);
}

/* A dead thread's entry is free when no recorder waits for it any more. */
static int claim(struct sg_shared_thread *shared)
{
    uint32_t state = __atomic_load_n(&shared->state, __ATOMIC_ACQUIRE);
    if (state != SG_THREAD_FREE && (state != SG_THREAD_DEAD || awaited_by(shared)))
        return 0;
    if (!sg_swap(&shared->state, state, SG_THREAD_DEAD + 1))
        return 0;
    if (state == SG_THREAD_FREE || !awaited_by(shared))
        return 1;
    __atomic_store_n(&shared->state, SG_THREAD_DEAD, __ATOMIC_RELEASE); /* another thread's meanwhile, which has died, too */
    return 0;
}

static uint32_t claim_entry(void)
{
    for (uint32_t i = 0; i < sg_arena->threads; i++)
        if (claim(&sg_shared_threads[i]))
            return i + 1;
    return 0;
}

/* Makes the state of the calling thread. Called with the lock held; 0 if the table or the pool of frames is full. */
struct sg_thread *sg_thread_make(uint32_t pid, uint32_t tid)
{
    sweep(tid, 8, is_gone);
    uint32_t claimed = claim_entry();
    if (!claimed && sweep(tid, 0xffffffff, is_gone))
        claimed = claim_entry();
    if (!claimed)
        return 0;
    if (sweep_end < claimed)
        sweep_end = claimed;
    struct sg_shared_thread *shared = &sg_shared_threads[claimed - 1];
    struct sg_thread *thread = &sg_threads[claimed - 1];
    *thread = (struct sg_thread){.shared = shared, .index = claimed - 1, .tid = tid};
    for (uint32_t ring = 0; ring < SG_RECORDERS; ring++)
        thread->rings[ring] = (struct sg_ring){.position = SG_NO_PLACE, .freed_seen = ~0u};
    thread->control_block = sg_control_block();
    shared->pid = pid;
    shared->tid = tid;
    shared->parent_pid = (uint32_t)sg_kernel0(KERNEL_getppid);
    shared->started = sg_ticks();
    shared->inside = shared->busy = 0; /* its former owner may have died in the middle */
    shared->ended = shared->missed = shared->dropped = shared->filtered = shared->values_lost = 0;
    sg_kernel2(KERNEL_prctl, 16 /* PR_GET_NAME */, shared->name);
    __atomic_store_n(&shared->state, SG_THREAD_LIVE, __ATOMIC_RELEASE);
    uint32_t block = sg_block_take(thread, 0);
    if (!block) {
        sg_thread_reclaim(claimed - 1);
        return 0;
    }
    thread->top = sg_block_frames(block - 1);
    thread->magic = SG_THREAD_MAGIC;
    sg_ring_bells();
    return thread;
}

/* The state of a thread that has none yet, or shares its TLS; 0 if the thread cannot be traced (now). */
struct sg_thread *sg_thread_make_own(void)
{
    uint64_t signals = sg_signals_block();
    struct sg_thread *thread = sg_thread_word(); /* a signal handler may have been quicker */
    if (thread == SG_THREAD_SHARED && *unforked) {
        thread = sg_thread_among_sharers();
    } else if (!sg_is_own(thread)) {
        uint32_t pid = (uint32_t)sg_kernel0(KERNEL_getpid);
        if (!*unforked)
            after_fork(pid, thread);
        if (pid == process) {
            uint64_t inner = sg_lock();
            thread = sg_thread_make(pid, (uint32_t)sg_kernel0(KERNEL_gettid));
            sg_unlock(inner);
            sg_thread_set(thread);
        } else {
            thread = 0; /* a child of vfork: its TLS is its parent's, which has made no traced call yet */
        }
    }
    sg_signals_restore(signals);
    return thread;
}

static int any_other(const struct sg_thread *thread)
{
    for (uint32_t i = 0; i < sweep_end; i++)
        if (sg_threads[i].magic == SG_THREAD_MAGIC && &sg_threads[i] != thread)
            return 1;
    return 0;
}

/*
 * The process is about to end, in a call whose slot is `slot`: what this thread and dead ones have left behind is over. Asks
 * the kernel nothing as long as there is nothing unusual: a sandbox may be around that ends who does. A child of vfork has
 * its parent's storage, and its parent's calls are not over.
 */
void sg_threads_end(uint64_t slot)
{
    struct sg_thread *thread = sg_thread_word();
    if (thread == SG_THREAD_SHARED)
        thread = sg_thread_here();
    if (sg_is_own(thread))
        sg_frames_end(thread, slot);
    if (!any_other(thread) || (uint32_t)sg_kernel0(KERNEL_getpid) != process)
        return;
    uint64_t signals = sg_lock();
    sweep(0, 0xffffffff, is_leaving);
    sg_unlock(signals);
}
