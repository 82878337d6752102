/*
 * Faults of handlers. While any handler in C is in the process, the agent handles SIGSEGV, SIGBUS, SIGFPE and SIGILL. A
 * fault within a handler ends that handler and switches its user off; every other one is the program's, and goes on to
 * what the program has chosen for it. The program asks for and changes these choices by sigaction(3), which is hooked
 * meanwhile: it finds its own there, never ours.
 */
#include "agent.h"

#define SIGNALS 4
#define SIG_DFL 0
#define SIG_IGN 1
#define SA_SIGINFO 4ull
#define SA_RESTORER 0x04000000ull
#define SA_ONSTACK 0x08000000ull
#define SA_RESTART 0x10000000ull
#define SA_NODEFER 0x40000000ull
#define SA_RESETHAND 0x80000000ull
#define KERNEL_rt_sigaction 13
#define KERNEL_rt_tgsigqueueinfo 297

/* As the kernel has it. */
struct action {
    uint64_t handler, flags, restorer, mask;
};

/* As the C libraries have it on x86-64 (struct sigaction). */
struct library_action {
    uint64_t handler;
    uint64_t mask[16];
    int flags;
    uint64_t restorer;
};

/* The part of ucontext_t that is changed: uc_mcontext.gregs begins at 40 (sys/ucontext.h). */
struct context {
    uint64_t before[5];
    uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags;
};

/* Lets the thread go on as if the handler that has faulted had returned -1 to whom sg_handler_run has noted. */
static void leave_handler(struct context *context, const uint64_t *way_out)
{
    uint64_t place = way_out[0] & ~(uint64_t)WAY_OUT_FRUGAL;
    context->rip = *(const uint64_t *)place;
    context->rsp = place + 8;
    context->rax = ~0ull;
    if (way_out[0] & WAY_OUT_FRUGAL)
        return;
    context->rbp = way_out[1];
    context->rbx = way_out[2];
    context->r12 = way_out[3];
    context->r13 = way_out[4];
    context->r14 = way_out[5];
    context->r15 = way_out[6];
    context->flags &= ~0x400ull; /* direction */
}

extern char sg_guard_entry[] SG_HIDDEN, sg_guard_restorer[] SG_HIDDEN;

static const uint8_t numbers[SIGNALS] = {11 /* SEGV */, 7 /* BUS */, 8 /* FPE */, 4 /* ILL */};
static struct action former[SIGNALS];
static uint32_t guarded;

static int index_of(uint64_t number)
{
    for (int i = 0; i < SIGNALS; i++)
        if (numbers[i] == number)
            return i;
    return -1;
}

/* Ours, with as much of the program's choice as the kernel must know. */
static void take(int i)
{
    struct action own = {
        .handler = (uint64_t)sg_guard_entry,
        .flags = SA_SIGINFO | SA_RESTORER | SA_NODEFER | (former[i].flags & (SA_ONSTACK | SA_RESTART)),
        .restorer = (uint64_t)sg_guard_restorer,
    };
    sg_kernel4(KERNEL_rt_sigaction, numbers[i], &own, 0, 8);
}

/* Called by the controller, in a thread of the process, before the first handler and after the last one. */
__attribute__((visibility("default"))) long sg_guard(long on)
{
    if ((on != 0) == guarded)
        return 0;
    for (int i = 0; i < SIGNALS; i++) {
        if (on) {
            sg_kernel4(KERNEL_rt_sigaction, numbers[i], 0, &former[i], 8);
            take(i);
        } else {
            sg_kernel4(KERNEL_rt_sigaction, numbers[i], &former[i], 0, 8);
        }
    }
    sg_settings.guarded = guarded = on != 0;
    return 1;
}

/* sigaction(number, new, old) is about to run: of our signals the program sees and changes its own choice. */
void sg_guard_sigaction(uint64_t *slot, struct sg_entry_registers *r)
{
    int i = index_of(r->rdi);
    uint64_t ignored;
    const struct library_action *new = (const struct library_action *)r->rsi;
    struct library_action *old = (struct library_action *)r->rdx;
    if (!guarded || i < 0 || (new && !sg_peek((uint64_t)new, &ignored)) || (old && !sg_peek((uint64_t)old, &ignored)))
        return; /* a bad pointer is the function's own business */
    struct action before = former[i];
    if (new) {
        former[i] = (struct action){
            .handler = new->handler,
            .flags = (uint32_t)new->flags | SA_RESTORER,
            .restorer = (uint64_t)sg_guard_restorer,
            .mask = new->mask[0],
        };
        take(i);
    }
    if (old) {
        old->handler = before.handler;
        old->mask[0] = before.mask;
        for (int word = 1; word < 16; word++)
            old->mask[word] = 0;
        old->flags = (int)before.flags;
        old->restorer = before.restorer;
    }
    r->rsi = 0; /* the function itself asks for nothing and changes nothing */
    slot[-3] = 0; /* rdx, where the entry path keeps it */
}

/* A signal that is the program's, and for which it has no handler: as the kernel would have it. */
static uint64_t without_handler(int i, int number, int *info, uint64_t handler)
{
    int sent = info[2] <= 0; /* si_code: by a process, not by a fault */
    if (handler == SIG_IGN && sent)
        return 0;
    struct action none = {.handler = SIG_DFL};
    sg_kernel4(KERNEL_rt_sigaction, number, sent || handler == SIG_DFL ? &former[i] : &none, 0, 8);
    if (sent)
        sg_kernel4(KERNEL_rt_tgsigqueueinfo, sg_kernel0(KERNEL_getpid), sg_kernel0(KERNEL_gettid), number, info);
    return 0; /* a fault happens again, and ends the program as it would have */
}

/*
 * Where a signal goes on: the address of the program's handler, or 0 to return. Called with the arguments of a signal
 * handler.
 */
SG_HIDDEN uint64_t sg_guard_decide(int number, int *info, struct context *context)
{
    int i = index_of((uint64_t)number);
    if (i < 0)
        return 0;
    if (info[2] > 0) {
        uint64_t address;
        __builtin_memcpy(&address, info + 4, sizeof address);
        const uint64_t *way_out = sg_handler_faulted((uint32_t)number, address, context->rip, context->rsp);
        if (way_out) {
            leave_handler(context, way_out);
            return 0;
        }
    }
    struct action chosen = former[i];
    if (chosen.handler <= SIG_IGN)
        return without_handler(i, number, info, chosen.handler);
    if (chosen.flags & SA_RESETHAND)
        former[i] = (struct action){.handler = SIG_DFL, .flags = SA_RESTORER, .restorer = (uint64_t)sg_guard_restorer};
    uint64_t mask = chosen.mask | (chosen.flags & SA_NODEFER ? 0 : 1ull << (number - 1));
    sg_kernel4(KERNEL_rt_sigprocmask, 0 /* SIG_BLOCK */, &mask, 0, 8);
    return chosen.handler;
}
