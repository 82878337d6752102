/* What the agent tells the controller and asks of it: all rare. Nobody waits for a dead controller. */
#include "agent.h"

void sg_ring_bell(void)
{
    __atomic_fetch_add(&sg_arena->bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sg_arena->waiting, __ATOMIC_SEQ_CST))
        sg_futex_wake(&sg_arena->bell);
}

/*
 * Called about every 50 ms while waiting: gone if there is no such process, or if its heart has not beaten for 60 looks
 * (a zombie, or another process with its pid). `heartbeat` and `still` belong to one wait and begin as 0.
 */
int sg_controller_gone(uint32_t *heartbeat, uint32_t *still)
{
    uint32_t now = __atomic_load_n(&sg_arena->heartbeat, __ATOMIC_RELAXED);
    *still = now == *heartbeat ? *still + 1 : 0;
    *heartbeat = now;
    return *still > 60 || !sg_arena->controller_pid ||
           sg_kernel2(KERNEL_kill, sg_arena->controller_pid, 0) == -ERROR_ESRCH;
}

static void ask(uint32_t kind, const uint64_t *arguments, uint32_t count)
{
    uint32_t heartbeat = 0, still = 0;
    struct sg_event *event = 0;
    if (!sg_arena->controller_pid)
        return;
    for (uint32_t i = 0; i < sg_arena->events && !event; i++)
        if (sg_swap(&sg_events[i].state, SG_EVENT_FREE, SG_EVENT_CLAIMED))
            event = &sg_events[i];
    if (!event)
        return;
    event->kind = kind;
    event->pid = (uint32_t)sg_kernel0(KERNEL_getpid);
    event->tid = (uint32_t)sg_kernel0(KERNEL_gettid);
    for (uint32_t i = 0; i < count; i++)
        event->arguments[i] = arguments[i];
    __atomic_store_n(&event->state, SG_EVENT_ASKED, __ATOMIC_RELEASE);
    sg_ring_bell();
    while (__atomic_load_n(&event->state, __ATOMIC_ACQUIRE) != SG_EVENT_ANSWERED) {
        uint32_t seen = __atomic_load_n(&sg_arena->freed, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&event->state, __ATOMIC_ACQUIRE) == SG_EVENT_ANSWERED)
            break;
        __atomic_fetch_add(&sg_arena->waiters, 1, __ATOMIC_SEQ_CST);
        sg_futex_wait(&sg_arena->freed, seen, 50000000);
        __atomic_fetch_sub(&sg_arena->waiters, 1, __ATOMIC_SEQ_CST);
        if (sg_controller_gone(&heartbeat, &still))
            break;
    }
    __atomic_store_n(&event->state, SG_EVENT_FREE, __ATOMIC_RELEASE);
}

/* Asks the controller and waits for its answer, with signals blocked: a handler must not run on a half-told story. */
void sg_event(uint32_t kind, const uint64_t *arguments, uint32_t count)
{
    uint64_t signals = sg_signals_block();
    ask(kind, arguments, count);
    sg_signals_restore(signals);
}

/*
 * An exec function is about to run: the controller seizes this process and enters the new program before it runs. The
 * system call is made here, after a look whether it can succeed at all (execvp tries many paths); if it fails, the
 * function itself repeats it and reports the error as ever.
 */
static void before_exec(uint64_t variant, const struct sg_entry_registers *r)
{
    if (variant == SG_EXEC_EXECVE && sg_kernel2(KERNEL_access, r->rdi, 1 /* X_OK */) < 0)
        return;
    sg_event(SG_EVENT_EXEC, (const uint64_t[]){variant, r->rdi, r->rsi}, 3);
    if (variant == SG_EXEC_EXECVE)
        sg_kernel3(KERNEL_execve, r->rdi, r->rsi, r->rdx);
    else if (variant == SG_EXEC_EXECVEAT)
        sg_kernel6(KERNEL_execveat, (long)r->rdi, (long)r->rsi, (long)r->rdx, (long)r->rcx, (long)r->r8, 0);
    else
        sg_kernel6(KERNEL_execveat, (long)r->rdi, (long)"", (long)r->rsi, (long)r->rdx, 0x1000 /* AT_EMPTY_PATH */, 0);
    sg_event(SG_EVENT_EXEC_FAILED, 0, 0);
}

/* clone(function, stack, flags, ...) */
static void before_clone(const struct sg_entry_registers *r)
{
    const uint64_t vm = 0x100, vfork = 0x4000, settls = 0x80000;
    if ((r->rdx & vm) && !(r->rdx & (vfork | settls)))
        sg_thread_share();
}

/* struct r_debug and struct link_map of <link.h>, as far as we look. */
struct loader_map {
    uint64_t address;
    const char *name;
    uint64_t dynamic;
    const struct loader_map *next;
};

struct loader_note {
    int version;
    const struct loader_map *map;
};

static int contains(const char *text, const char *part)
{
    for (; text && *text; text++) {
        const char *a = text, *b = part;
        while (*b && *a == *b)
            a++, b++;
        if (!*b)
            return 1;
    }
    return 0;
}

/* Whether any user wants functions of what is loaded; a controller that has none of them would not answer. */
static int somebody_follows(void)
{
    for (uint64_t users = sg_registry->live; users; users &= users - 1)
        if (sg_registry->users[__builtin_ctzll(users)].flags & SG_USER_FOLLOWS)
            return 1;
    return 0;
}

/* Something has been loaded or unloaded. Greenlet copies pieces of stacks; it is known by its name. */
static void after_loading(void)
{
    const struct loader_note *note = (const struct loader_note *)sg_settings.loader_note;
    for (const struct loader_map *map = note ? note->map : 0; map; map = map->next)
        if (contains(map->name, "greenlet"))
            sg_settings.stacks_are_copied = 1;
    if (sg_settings.ask_when_loaded && somebody_follows())
        sg_event(SG_EVENT_LOADED, (const uint64_t[]){0}, 1);
}

/* Runs at the entry of a function that is hooked for our own needs. */
void sg_event_hook(const struct sg_function *function, uint64_t slot, struct sg_entry_registers *registers)
{
    if (function->flags & SG_FLAG_EXEC)
        before_exec(function->variant, registers);
    if (function->flags & SG_FLAG_LOADED)
        after_loading();
    if (function->flags & SG_FLAG_CLONE)
        before_clone(registers);
    if (function->flags & SG_FLAG_SIGACTION)
        sg_guard_sigaction((uint64_t *)slot, registers);
    if (function->flags & SG_FLAG_EXIT)
        sg_threads_end(slot);
}
