/* What the agent tells the controller and asks of it: all rare. Nobody waits for a dead controller. */
#include "agent.h"

/* The looks at a heart that does not beat, 50 ms apart, after which its controller counts as gone. */
#define LOOKS 60
/* The same where kill(2) knows no such process: one in a PID namespace of its own does not see its controller. */
#define LOOKS_UNSEEN 5
/* The looks after which a program that was executed begins, whoever has not entered it yet: a minute. */
#define LOOKS_ENTERED 1200

static void sound(uint32_t *bell, const uint32_t *waiting)
{
    __atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(waiting, __ATOMIC_SEQ_CST))
        sg_futex_wake(bell);
}

void sg_ring_bell(uint32_t ring)
{
    sound(&sg_rings[ring].bell, &sg_rings[ring].waiting);
}

/* There is something for everybody to look at. */
void sg_ring_bells(void)
{
    sound(&sg_arena->bell, &sg_arena->waiting);
    for (uint32_t ring = 0; ring < SG_RECORDERS; ring++)
        if (sg_rings[ring].controller_pid)
            sg_ring_bell(ring);
}

static int is_gone(uint32_t pid, uint32_t still)
{
    return still > LOOKS || (still >= LOOKS_UNSEEN && sg_kernel2(KERNEL_kill, pid, 0) == -ERROR_ESRCH);
}

/*
 * Called about every 50 ms while waiting: gone if there is no such process, or if its heart has not beaten for all LOOKS
 * (a zombie, or another process with its pid). `heartbeat` and `still` belong to one wait and begin as 0.
 */
int sg_controller_gone(uint32_t ring, uint32_t *heartbeat, uint32_t *still)
{
    const struct sg_rings *rings = &sg_rings[ring];
    uint32_t now = __atomic_load_n(&rings->heartbeat, __ATOMIC_RELAXED);
    *still = now == *heartbeat ? *still + 1 : 0;
    *heartbeat = now;
    return !rings->controller_pid || is_gone(rings->controller_pid, *still);
}

/* Whether a user is there that answers such events. */
static int answers(uint32_t slot, uint32_t kind)
{
    if (kind == SG_EVENT_ENTERED)
        return __atomic_load_n(&sg_registry->users[slot].kind, __ATOMIC_RELAXED) == SG_USER_EXPECTED;
    uint32_t flag = kind == SG_EVENT_LOADED ? SG_USER_FOLLOWS : SG_USER_FOLLOWS_EXEC;
    return (sg_registry->live >> slot & 1) && (__atomic_load_n(&sg_registry->users[slot].flags, __ATOMIC_RELAXED) & flag);
}

static int somebody_answers(uint32_t kind)
{
    uint32_t slot = 0;
    while (slot < SG_USERS && !answers(slot, kind))
        slot++;
    return slot < SG_USERS;
}

/*
 * Whose controller was gone when a thread last waited for it, by slot, and how often its heart had beaten. Who loads a hundred
 * libraries is to wait once for one that was killed; one that was late is waited for again as soon as its heart beats.
 */
static struct {
    uint32_t controller_pid, heartbeat;
} gone[SG_USERS];

static int was_gone(uint32_t slot)
{
    const struct sg_user *user = &sg_registry->users[slot];
    return gone[slot].controller_pid && gone[slot].controller_pid == user->controller_pid &&
           gone[slot].heartbeat == __atomic_load_n(&user->heartbeat, __ATOMIC_RELAXED);
}

static void ask_whom(struct sg_event *event)
{
    for (uint32_t slot = 0; slot < SG_USERS; slot++) {
        event->still[slot] = 0;
        event->waits[slot] = (uint8_t)(answers(slot, event->kind) && !was_gone(slot));
    }
}

static int all_have_answered(const struct sg_event *event)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < SG_USERS / 8; i++)
        any |= __atomic_load_n((const uint64_t *)event->waits + i, __ATOMIC_ACQUIRE);
    return !any;
}

/* Called about every 50 ms: nobody waits for a user that has gone, or whose controller has, or shows no sign of life. */
static void forget_the_gone(struct sg_event *event)
{
    for (uint32_t slot = 0; slot < SG_USERS; slot++) {
        const struct sg_user *user = &sg_registry->users[slot];
        if (!event->waits[slot])
            continue;
        uint32_t now = __atomic_load_n(&user->heartbeat, __ATOMIC_RELAXED);
        event->still[slot] = now == event->heartbeat[slot] ? event->still[slot] + 1 : 0;
        event->heartbeat[slot] = now;
        int is_there = answers(slot, event->kind);
        if (is_there && !is_gone(user->controller_pid, event->still[slot]))
            continue; /* nothing is written: it may have answered in between */
        if (is_there) {
            gone[slot].controller_pid = user->controller_pid;
            gone[slot].heartbeat = now;
        }
        event->waits[slot] = 0;
    }
}

static void wait_for_answers(struct sg_event *event)
{
    for (uint32_t looks = 0; !all_have_answered(event); looks++) {
        if (event->kind == SG_EVENT_ENTERED && looks > LOOKS_ENTERED)
            return;
        uint32_t seen = __atomic_load_n(&sg_arena->answered, __ATOMIC_ACQUIRE);
        if (all_have_answered(event))
            return;
        __atomic_fetch_add(&sg_arena->askers, 1, __ATOMIC_SEQ_CST);
        sg_futex_wait(&sg_arena->answered, seen, 50000000);
        __atomic_fetch_sub(&sg_arena->askers, 1, __ATOMIC_SEQ_CST);
        forget_the_gone(event);
    }
}

static void ask(uint32_t kind, const uint64_t *arguments, uint32_t count)
{
    struct sg_event *event = 0;
    if (!somebody_answers(kind))
        return;
    for (uint32_t i = 0; i < sg_arena->events && !event; i++)
        if (sg_swap(&sg_events[i].state, SG_EVENT_FREE, SG_EVENT_CLAIMED))
            event = &sg_events[i];
    if (!event)
        return;
    event->kind = kind;
    event->pid = (uint32_t)sg_kernel0(KERNEL_getpid);
    event->tid = (uint32_t)sg_kernel0(KERNEL_gettid);
    event->followed_by = 0;
    for (uint32_t i = 0; i < count; i++)
        event->arguments[i] = arguments[i];
    ask_whom(event);
    __atomic_store_n(&event->state, SG_EVENT_ASKED, __ATOMIC_RELEASE);
    sg_ring_bells();
    wait_for_answers(event);
    __atomic_store_n(&event->state, SG_EVENT_FREE, __ATOMIC_RELEASE);
}

/* Asks those who answer such events, and waits for them, with signals blocked: a handler must not run on a half-told story. */
void sg_event(uint32_t kind, const uint64_t *arguments, uint32_t count)
{
    uint64_t signals = sg_signals_block();
    ask(kind, arguments, count);
    sg_signals_restore(signals);
}

/*
 * The first thing that an executed program does, if several controllers go along: the first one has hooked it, and has its
 * thread call this before it begins. The others join the first one now, as they would join it in any process that runs.
 */
__attribute__((visibility("default"))) void sg_wait_for_others(void)
{
    sg_event(SG_EVENT_ENTERED, 0, 0);
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

/* Something has been loaded or unloaded. Greenlet copies pieces of stacks; it is known by its name. */
static void after_loading(void)
{
    const struct loader_note *note = (const struct loader_note *)sg_settings.loader_note;
    for (const struct loader_map *map = note ? note->map : 0; map; map = map->next)
        if (contains(map->name, "greenlet"))
            sg_settings.stacks_are_copied = 1;
    /* The controller that has borrowed this thread waits for it, and could not answer. */
    if (sg_settings.ask_when_loaded && sg_settings.borrowed != sg_control_block())
        sg_event(SG_EVENT_LOADED, 0, 0);
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
