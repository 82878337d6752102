/* What the agent's files offer each other. */
#ifndef SHADOWGRAPH_AGENT_H
#define SHADOWGRAPH_AGENT_H

#include "kernel.h"
#include "state.h"

#define SG_THREAD_MAGIC 0x6461657268746773ull
#define SG_THREAD_SHARED ((struct sg_thread *)1) /* its TLS is that of several kernel threads: see sharing.c */

/* Registers at the entry of a function, as the slow path saves them: the order is paths.S's. */
struct sg_entry_registers {
    uint64_t rdi, rsi, rdx, rcx, r8, r9, r10, r11;
    struct {
        uint64_t low, high;
    } xmm[8];
};

struct sg_exit_registers {
    uint64_t r8, r9, r10, r11, rax, rdx;
    struct {
        uint64_t low, high;
    } xmm[2];
};

/* start.c */
extern struct sg_shared_thread *sg_shared_threads SG_HIDDEN;
extern struct sg_rings *sg_rings SG_HIDDEN;
extern struct sg_event *sg_events SG_HIDDEN;
extern struct sg_chunk *sg_chunks SG_HIDDEN;
extern struct sg_open *sg_open_calls SG_HIDDEN;
extern struct sg_function *sg_functions SG_HIDDEN;
extern struct sg_registry *sg_registry SG_HIDDEN;
extern struct sg_losses *sg_losses SG_HIDDEN;
extern struct sg_page *sg_pages SG_HIDDEN;
extern uint64_t *sg_cells SG_HIDDEN;
extern char *sg_pool SG_HIDDEN;
extern struct sg_thread *sg_threads SG_HIDDEN;
extern uint64_t sg_caller_low SG_HIDDEN, sg_caller_size SG_HIDDEN, sg_minimal_ticks SG_HIDDEN;
long sg_start(void);

/* renew.c */
extern struct sg_kept sg_kept[SG_KEPT_LIMIT] SG_HIDDEN;

/* thread.c */
SG_HIDDEN struct sg_thread *sg_thread_make_own(void);
SG_HIDDEN void sg_threads_start(uint32_t *mark);
SG_HIDDEN int sg_threads_locked(void);
SG_HIDDEN uint32_t sg_threads_process(void);
SG_HIDDEN uint64_t sg_thread_place(void);
SG_HIDDEN void sg_thread_share(void);
SG_HIDDEN struct sg_thread *sg_thread_make(uint32_t pid, uint32_t tid);
SG_HIDDEN void sg_thread_reclaim(uint32_t index);
SG_HIDDEN void sg_write_task_path(char *path, uint32_t tid, const char *file);
SG_HIDDEN struct sg_thread *sg_thread_among_sharers(void);
SG_HIDDEN int sg_threads_sweep(struct sg_thread *self, uint32_t most);
SG_HIDDEN void sg_threads_end(uint64_t slot);
SG_HIDDEN uint64_t sg_lock(void);
SG_HIDDEN void sg_unlock(uint64_t signals);

/* stack.c */
SG_HIDDEN int sg_on_own_stack(struct sg_thread *thread, uint64_t address);
SG_HIDDEN int sg_on_signal_stack(uint64_t address);
SG_HIDDEN int sg_find_mapping(uint64_t address, uint64_t *low, uint64_t *high, int *guarded);

/* blocks.c */
SG_HIDDEN uint32_t sg_block_take(struct sg_thread *thread, struct sg_frame *below);
SG_HIDDEN void sg_frames_prepare(struct sg_frame *frames, uint32_t count, struct sg_frame *below);
SG_HIDDEN void sg_blocks_reclaim(struct sg_thread *thread);
SG_HIDDEN void sg_blocks_after_fork(struct sg_thread *former);
SG_HIDDEN void sg_blocks_renew(void);
SG_HIDDEN void sg_frames_without_limit(void);
SG_HIDDEN int sg_frames_are_cut(void);
SG_HIDDEN uint64_t sg_frame_uncut(const struct sg_frame *frame);

/* holes.c */
SG_HIDDEN struct sg_frame *sg_holes_use(struct sg_thread *thread, struct sg_frame *below, uint64_t slot, int everywhere);
SG_HIDDEN void sg_holes_give_back(struct sg_thread *thread, struct sg_frame *sentinel);

/* reaping.c */
SG_HIDDEN int sg_frame_dead(struct sg_thread *thread, struct sg_frame *frame, uint64_t slot);
SG_HIDDEN int sg_frame_unwound(struct sg_thread *thread, struct sg_frame *frame);
SG_HIDDEN void sg_frames_end(struct sg_thread *thread, uint64_t slot);

/* frames.c */
SG_HIDDEN uint64_t sg_resolve_return_address(uint64_t slot);

/* A call as its users see it at the entry. */
struct sg_user_call {
    uint64_t *slot;
    const struct sg_function *function;
    const struct sg_entry_registers *registers;
    uint64_t users, epoch;
};

#define SG_STATE_SIZE 4096 /* the standard format of XSAVE without AMX takes less than 2.7 KiB */

/* predicate.c */
struct sg_predicate;
struct sg_predicate_input;
SG_HIDDEN int sg_predicate_holds(const struct sg_predicate *predicate, const struct sg_predicate_input *input);

/* areas.c */
SG_HIDDEN int sg_area_begin(struct sg_frame *frame, uint64_t epoch);
SG_HIDDEN void *sg_area_take(struct sg_frame *frame, uint32_t user, uint64_t size);
SG_HIDDEN void *sg_area_part(struct sg_frame *frame, uint32_t user);
SG_HIDDEN void sg_area_hold(struct sg_frame *frame, uint32_t user, int on);
SG_HIDDEN uint64_t sg_area_holding(const struct sg_frame *frame, uint64_t *epoch);

/* instances.c */
SG_HIDDEN uint64_t sg_instance_space(const struct sg_user *user);
SG_HIDDEN void *sg_instance_take(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot);
SG_HIDDEN void *sg_instance_of(struct sg_frame *frame, uint32_t slot);
SG_HIDDEN void sg_instance_give_back(struct sg_frame *frame, uint32_t slot);

/* handlers.c */
SG_HIDDEN const uint64_t *sg_handler_faulted(uint32_t number, uint64_t address, uint64_t pc, uint64_t place);

/* guard.c */
SG_HIDDEN void sg_guard_sigaction(uint64_t *slot, struct sg_entry_registers *registers);

/* emitting.c */
SG_HIDDEN int sg_emit_event(uint32_t slot, uint64_t function, uint32_t thread, const void *record, uint64_t size);

/* users.c */
SG_HIDDEN void sg_users_start(void);
SG_HIDDEN uint64_t sg_users_at_entry(struct sg_thread *thread, struct sg_frame *frame, const struct sg_user_call *call);
SG_HIDDEN void sg_users_at_return(struct sg_thread *thread, struct sg_frame *frame, uint64_t now, const struct sg_exit_registers *registers);
SG_HIDDEN int sg_user_exit_holds(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now,
                                 const struct sg_exit_registers *registers);
SG_HIDDEN void *sg_user_data(struct sg_frame *frame, uint32_t slot, int take);
SG_HIDDEN void sg_see_vectors(uint64_t (*to)[2], const struct sg_user_call *call);
SG_HIDDEN void sg_users_unwound(struct sg_thread *thread, const struct sg_frame *frame);
SG_HIDDEN void sg_users_over(struct sg_thread *thread, struct sg_frame *frame);
SG_HIDDEN void sg_users_missed(struct sg_thread *thread, uint64_t users);
SG_HIDDEN void sg_user_filtered(struct sg_thread *thread, uint32_t slot);

/* cells.c */
SG_HIDDEN uint64_t *sg_cell_made(struct sg_thread *thread, uint64_t number);
SG_HIDDEN void sg_cells_leave(uint32_t thread);

/* rings.c */
SG_HIDDEN void *sg_rings_place(uint32_t ring, uint64_t at);
SG_HIDDEN void sg_rings_renew(void);
SG_HIDDEN void sg_rings_after_fork(void);

/* values.c */
SG_HIDDEN int sg_values_at_entry(const struct sg_frame *frame, uint32_t ring, const uint64_t *slot, const struct sg_entry_registers *registers);
SG_HIDDEN void sg_values_at_return(const struct sg_frame *frame, uint32_t ring, const struct sg_exit_registers *registers);
SG_HIDDEN const uint64_t *sg_values_captured(const struct sg_frame *frame, uint32_t ring);

/* ring.c */
struct sg_record {
    uint64_t start; /* q0 */
    uint64_t duration, function;
    uint32_t kind;
};
SG_HIDDEN void sg_record_values(struct sg_thread *thread, uint32_t ring, const struct sg_record *what, const uint64_t *values, uint32_t words);
SG_HIDDEN void sg_ring_close(struct sg_thread *thread);

/* event.c */
SG_HIDDEN void sg_ring_bell(uint32_t ring);
SG_HIDDEN void sg_ring_bells(void);
SG_HIDDEN int sg_controller_gone(uint32_t ring, uint32_t *heartbeat, uint32_t *still);
SG_HIDDEN void sg_event(uint32_t kind, const uint64_t *arguments, uint32_t count);
SG_HIDDEN void sg_event_hook(const struct sg_function *function, uint64_t slot, struct sg_entry_registers *registers);

static inline uint32_t sg_ring_of_slot(uint32_t slot)
{
    return slot ? SG_USERS - slot : 0;
}

static inline uint32_t sg_slot_of_ring(uint32_t ring)
{
    return ring ? SG_USERS - ring : 0;
}

static inline struct sg_losses *sg_losses_of(const struct sg_thread *thread, uint32_t slot)
{
    return &sg_losses[(uint64_t)thread->index * SG_USERS + slot];
}

/* Whether the plain paths have a recorder to serve: slot 0 may have been given to another user, all others being taken. */
static inline uint64_t sg_plain_recorder(void)
{
    return sg_registry->recorders & 1;
}

static inline struct sg_frame *sg_block_frames(uint32_t block)
{
    return sg_frames + block * SG_BLOCK_FRAMES;
}

/* For a race detector, which knows neither membarrier nor who learns of a thread's end from the kernel (tests/support/race). */
#ifdef __SANITIZE_THREAD__
void __tsan_release(void *word);
void __tsan_acquire(void *word);
#define SG_BEFORE(word) __tsan_release(word)
#define SG_BEHIND(word) __tsan_acquire(word)
#else
#define SG_BEFORE(word) ((void)0)
#define SG_BEHIND(word) ((void)0)
#endif

static inline int sg_swap(uint32_t *word, uint32_t old, uint32_t new)
{
    return __atomic_compare_exchange_n(word, &old, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Compare and exchange of a word that only this thread and its signal handlers change: no lock prefix needed. */
static inline int sg_swap_own(void *word, uint64_t old, uint64_t new)
{
    uint8_t done;
    __asm__ volatile("cmpxchg %3, %1\n\tsete %0" : "=q"(done), "+m"(*(uint64_t *)word), "+a"(old) : "r"(new) : "memory", "cc");
    return done;
}

/* Moves the top of a thread's frames to another block, unless it has moved since `steps` was read, before `from` was. */
static inline int sg_step(struct sg_thread *thread, struct sg_frame *from, uint64_t steps, struct sg_frame *to)
{
    uint8_t done;
    uint64_t low = (uint64_t)from;
    __asm__ volatile("cmpxchg16b %1\n\tsete %0"
                     : "=q"(done), "+m"(thread->top), "+a"(low), "+d"(steps), "+m"(thread->steps)
                     : "b"(to), "c"(steps + 1)
                     : "memory", "cc");
    return done;
}

/* The low halves of xmm0 to xmm7 as they are now: no code of the agent has touched them since it was entered. */
static inline void sg_read_vectors(uint64_t (*to)[2])
{
    __asm__ volatile("movups %%xmm0, (%0)\n\tmovups %%xmm1, 16(%0)\n\tmovups %%xmm2, 32(%0)\n\tmovups %%xmm3, 48(%0)\n\t"
                     "movups %%xmm4, 64(%0)\n\tmovups %%xmm5, 80(%0)\n\tmovups %%xmm6, 96(%0)\n\tmovups %%xmm7, 112(%0)"
                     :
                     : "r"(to)
                     : "memory");
}

static inline uint64_t sg_control_block(void)
{
    uint64_t address;
    __asm__("mov %%fs:0, %0" : "=r"(address));
    return address;
}

/* Where the cell with this number lies in this thread's memory; 0 if there is no room for it. */
static inline uint64_t *sg_cell(struct sg_thread *thread, uint64_t number)
{
    uint64_t at = number / SG_PAGE_CELLS, *page;
    if (__builtin_expect(at < SG_PAGE_NUMBERS && thread->pages && (page = thread->pages[at]), 1))
        return page + number % SG_PAGE_CELLS;
    return sg_cell_made(thread, number);
}

static inline int sg_is_own(const struct sg_thread *thread)
{
    return (uint64_t)thread > (uint64_t)SG_THREAD_SHARED && thread->magic == SG_THREAD_MAGIC && thread->control_block == sg_control_block();
}

/* The calling thread's state, made if there is none yet; 0 if there can be none now (counted by the caller). */
static inline struct sg_thread *sg_thread_here(void)
{
    struct sg_thread *thread = sg_thread_word();
    return __builtin_expect(sg_is_own(thread), 1) ? thread : sg_thread_make_own();
}

static inline uint64_t sg_site_of(const struct sg_frame *frame)
{
    return (uint64_t)sg_sites + (uint64_t)(frame - sg_frames) * SG_STRIDE;
}

static inline int sg_is_sentinel(const struct sg_frame *frame)
{
    return !frame->site;
}

static inline int sg_in_flight(uint64_t slot)
{
    return slot > SG_SLOT_LAST_MARK && slot < (uint64_t)SG_SLOT_START;
}

#endif
