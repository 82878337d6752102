/*
 * Users with code of their own: handlers in C that the controller has loaded into the process (include/shadowgraph/ops.h).
 * Here is what is rare about them; handling.h has what each call of theirs takes.
 */
#include "handling.h"

/* Where the process's vector registers are kept while a handler runs that may use them. */
struct state {
    uint8_t bytes[SG_STATE_SIZE] __attribute__((aligned(64)));
};

struct sg_handlers_here sg_handlers_here;

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

/* Apart: only these calls need so much of the stack. */
int sg_handler_run_with_vectors(struct sg_call *call, uint64_t address, uint64_t *way_out)
{
    struct state state;
    save_state(&state);
    int result = sg_handler_run(call, address, way_out);
    restore_state(&state);
    return result;
}

/*
 * A fault at `pc`: if it is that of a handler that this thread runs, its user is switched off. Returns where to go on, as
 * sg_handler_run has noted it; 0 if it is the program's own. `place` is the stack pointer.
 */
const uint64_t *sg_handler_faulted(uint32_t number, uint64_t address, uint64_t pc, uint64_t place)
{
    struct sg_thread *thread = sg_thread_word();
    if (thread <= SG_THREAD_SHARED || thread->magic != SG_THREAD_MAGIC || !thread->shared->inside)
        return 0;
    uint32_t slot = sg_inside_whose(thread->shared->inside);
    struct sg_user *user = &sg_registry->users[slot];
    int in_code = pc - user->code < user->code_size;
    uint64_t called_from;
    if (!in_code && sg_peek(place, &called_from)) /* it has called what is no code */
        in_code = called_from - user->code < user->code_size;
    if (place > sg_inside_where(thread->shared->inside) || (user->code_size && !in_code))
        return 0; /* of a signal handler that has interrupted it, or after it was left by longjmp */
    user->fault_address = address;
    user->fault = number;
    __atomic_fetch_or(&sg_registry->faulted, 1ull << slot, __ATOMIC_SEQ_CST);
    __atomic_store_n(&sg_registry->since[slot], SG_NOBODY, __ATOMIC_SEQ_CST);
    return thread->way_out;
}

int sg_handler_emit(struct sg_call *call, const void *record, uint64_t size)
{
    return sg_emit_event((uint32_t)call->user, call->function, call->thread, record, size);
}

/* The entry side of a user; whether the exit is wanted. */
int sg_handler_enter(struct sg_thread *thread, struct sg_handling *handling, struct sg_frame *frame, uint32_t slot,
                     const struct sg_user_call *its)
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
    if (!handling->told) {
        uint64_t return_address = frame ? sg_owner_of_slot(frame)->original : *its->slot;
        sg_handling_tell_entry(thread, handling, its->function, its->registers, its->slot, return_address);
    }
    handling->call.data = user->data_size ? data : 0;
    handling->call.data_size = user->data_size;
    handling->call.instance = instance;
    handling->call.instance_size = user->instance_size;
    if (sg_registry->told_time >> slot & 1)
        sg_handling_tell_time(handling);
    if ((user->flags & SG_USER_SEES_VECTORS) && !handling->seen) {
        sg_see_vectors(handling->vectors, its);
        handling->seen = 1;
    }
    int wanted = 0;
    if (handling->running || sg_handling_announce(thread, handling, slot, (uint64_t)its->slot))
        wanted = sg_handling_run(thread, handling, slot, user->entry, user->flags & SG_USER_VECTORS) && user->exit;
    else
        sg_users_missed(thread, 1ull << slot);
    if (instance && !wanted)
        sg_instance_give_back(frame, slot);
    return wanted;
}

/* The exit side. */
void sg_handler_leave(struct sg_thread *thread, struct sg_handling *handling, struct sg_frame *frame, uint32_t slot, uint64_t now,
                      const struct sg_exit_registers *registers)
{
    const struct sg_user *user = &sg_registry->users[slot];
    if (!handling->told)
        sg_handling_tell_exit(thread, handling, frame, now, registers, sg_owner_of_slot(frame)->original);
    handling->call.data = user->data_size ? sg_user_data(frame, slot, 0) : 0;
    handling->call.data_size = user->data_size;
    handling->call.instance = user->instances ? sg_instance_of(frame, slot) : 0;
    handling->call.instance_size = user->instance_size;
    if (handling->running || sg_handling_announce(thread, handling, slot, frame->slot))
        sg_handling_run(thread, handling, slot, user->exit, user->flags & SG_USER_VECTORS);
    else
        sg_users_missed(thread, 1ull << slot);
}
