/*
 * Users with code of their own: handlers in C that the controller has loaded into the process (include/shadowgraph/ops.h).
 *
 * A thread in a handler says so in shared memory, then looks once more whether the user is still there: whoever unregisters
 * takes the user off first, makes all threads pass a barrier, and waits for those that are inside. That barrier is why none is
 * needed here, where each call would pay for it (src/shadowgraph/agent/barrier.py). The calls that a handler makes are not
 * given to handlers; one that it has left by longjmp is noticed by the stack pointer.
 */
#include "frames.h"
#include "shadowgraph/ops.h"

/* Where the process's vector registers are kept while a handler runs that may use them. */
struct state {
    uint8_t bytes[SG_STATE_SIZE] __attribute__((aligned(64)));
};

/* `from`: the slot of a call. One within a handler lies below where that runs; if it does not, the handler has been left. */
static int is_inside(struct sg_thread *thread, uint64_t from)
{
    struct sg_shared_thread *shared = thread->shared;
    if (!shared->inside)
        return 0;
    if (from > shared->inside_stack && sg_on_own_stack(thread, from) == sg_on_own_stack(thread, shared->inside_stack))
        return 0; /* it was left without returning */
    return 1;
}

/* Everything but the tiles of AMX, which no handler touches (XCR0 bits 17 and 18). */
static void save_state(struct state *state)
{
    for (uint32_t i = 512; i < 576; i++)
        state->bytes[i] = 0; /* the header: xrstor refuses one with stray bits */
    uint32_t control = 0x1f80;
    __asm__ volatile("xsave64 %0" : "=m"(*state) : "a"(0xfff9ffff), "d"(0xffffffff) : "memory");
    __asm__ volatile("fninit\n\tldmxcsr %0" : : "m"(control));
}

static void restore_state(struct state *state)
{
    __asm__ volatile("xrstor64 %0" : : "m"(*state), "a"(0xfff9ffff), "d"(0xffffffff) : "memory");
}

typedef int handler(struct sg_call *call);

/* Where a handler that faults goes on: in the stack frame of the function that has called it. */
struct way_out {
    void *place[5]; /* __builtin_setjmp */
};

/* Runs in the faulting thread, when the guard has returned from the signal. */
__attribute__((noreturn)) static void resume(struct way_out *out)
{
    __builtin_longjmp(out->place, 1);
}

/*
 * A fault at `pc`: if it is that of a handler that this thread runs, its user is switched off. Returns where to go on, with
 * what argument in `place`; 0 if it is the program's own. `place` comes with the stack pointer.
 */
uint64_t sg_handler_faulted(uint32_t number, uint64_t address, uint64_t pc, uint64_t *place)
{
    struct sg_thread *thread = sg_thread_word();
    if (thread <= SG_THREAD_SHARED || thread->magic != SG_THREAD_MAGIC || !thread->shared->inside)
        return 0;
    struct sg_user *user = &sg_registry->users[(thread->shared->inside - 1) % SG_USERS];
    int in_code = pc - user->code < user->code_size;
    uint64_t called_from;
    if (!in_code && sg_peek(*place, &called_from)) /* it has called what is no code */
        in_code = called_from - user->code < user->code_size;
    if (*place > thread->shared->inside_stack || (user->code_size && !in_code))
        return 0; /* of a signal handler that has interrupted it, or after it was left by longjmp */
    user->fault_address = address;
    user->fault = number;
    __atomic_fetch_or(&sg_registry->faulted, 1ull << (user - sg_registry->users), __ATOMIC_SEQ_CST);
    *place = (uint64_t)thread->way_out;
    return (uint64_t)resume;
}

/* Runs a handler with a way out for when it faults. Apart, since what calls setjmp keeps nothing in registers. */
__attribute__((noinline)) static int run_guarded(struct sg_thread *thread, uint64_t address, struct sg_call *call)
{
    struct way_out out;
    thread->way_out = &out;
    if (__builtin_setjmp(out.place))
        return -1;
    return ((handler *)address)(call);
}

/* Apart: only these calls need so much of the stack. */
__attribute__((noinline)) static int run_with_vectors(struct sg_thread *thread, uint64_t address, struct sg_call *call)
{
    struct state state;
    save_state(&state);
    int result = run_guarded(thread, address, call);
    restore_state(&state);
    return result;
}

/* Runs a handler unless this thread is in one, or the user has gone; what it returns, or -1. */
static int enter(struct sg_thread *thread, uint32_t slot, uint64_t from, uint64_t epoch, uint64_t address, struct sg_call *call)
{
    struct sg_shared_thread *shared = thread->shared;
    struct sg_user *user = &sg_registry->users[slot];
    uint64_t here = (uint64_t)__builtin_frame_address(0);
    if (is_inside(thread, from))
        return -1;
    shared->inside_stack = here;
    __atomic_store_n(&shared->inside, slot + 1, __ATOMIC_RELAXED);
    shared->inside_stack = here; /* once more: a handler of a signal between the two may have had its own */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    int result = -1;
    if ((sg_registry->live & ~sg_registry->faulted) >> slot & 1 && sg_registry->epochs[slot] <= epoch)
        result = user->flags & SG_USER_VECTORS ? run_with_vectors(thread, address, call) : run_guarded(thread, address, call);
    __atomic_store_n(&shared->inside, 0, __ATOMIC_RELEASE);
    return result < 0 ? 1 : result;
}

static int emit(struct sg_call *call, const void *record, uint64_t size)
{
    return sg_emit_event((uint32_t)call->user, call->function, call->thread, record, size);
}

/* When a call came, by one look at the clock for all handlers: it is most of what an empty one costs. */
static uint64_t time_of(struct sg_user_call *call)
{
    if (!call->time)
        call->time = sg_ticks();
    return call->time;
}

/* The entry side; whether the exit is wanted. All members are named below: else the compiler clears them all first. */
int sg_handler_enter(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, struct sg_user_call *its)
{
    const struct sg_user *user = &sg_registry->users[slot];
    void *data = 0, *instance = 0;
    int keeps = user->data_size || user->instances;
    if (keeps && (!(frame && (data = sg_user_data(frame, slot, 1))) ||
                  (user->instances && !(instance = sg_instance_take(thread, frame, slot))))) {
        sg_users_missed(thread, 1ull << slot);
        return 0;
    }
    if (!user->entry)
        return 1;
    uint64_t vectors[8][2];
    if (user->flags & SG_USER_SEES_VECTORS)
        sg_see_vectors(vectors, its);
    struct sg_call call = {
        .function = its->function->id,
        .arguments = &its->registers->rdi,
        .stack = its->slot + 1,
        .vectors = (const uint64_t(*)[2])vectors,
        .result = 0,
        .result_high = 0,
        .return_address = frame ? sg_owner_of_slot(frame)->original : *its->slot,
        .data = user->data_size ? data : 0,
        .data_size = user->data_size,
        .instance = instance,
        .instance_size = user->instance_size,
        .time = time_of(its),
        .duration = 0,
        .thread = thread->tid,
        .process = thread->shared->pid,
        .emit = emit,
        .user = slot,
    };
    int wanted = enter(thread, slot, (uint64_t)its->slot, its->epoch, user->entry, &call);
    if (wanted < 0)
        sg_users_missed(thread, 1ull << slot);
    wanted = wanted > 0 && user->exit;
    if (instance && !wanted)
        sg_instance_give_back(frame, slot);
    return wanted;
}

/* The exit side. */
void sg_handler_leave(struct sg_thread *thread, struct sg_frame *frame, uint32_t slot, uint64_t now, const struct sg_exit_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    struct sg_call call = {
        .function = frame->function->id,
        .arguments = 0,
        .stack = 0,
        .vectors = (const uint64_t(*)[2])registers->xmm,
        .result = registers->rax,
        .result_high = registers->rdx,
        .return_address = sg_owner_of_slot(frame)->original,
        .data = user->data_size ? sg_user_data(frame, slot, 0) : 0,
        .data_size = user->data_size,
        .instance = user->instances ? sg_instance_of(frame, slot) : 0,
        .instance_size = user->instance_size,
        .time = now - sg_duration_of(frame, now),
        .duration = sg_duration_of(frame, now),
        .thread = thread->tid,
        .process = thread->shared->pid,
        .emit = emit,
        .user = slot,
    };
    if (enter(thread, slot, sg_owner_of_slot(frame)->slot, frame->open->epoch, user->exit, &call) < 0)
        sg_users_missed(thread, 1ull << slot);
}
