/*
 * Stacks that end, or cannot be followed, in unusual ways; the first argument chooses. In each `stop_here` is called, save for
 * the call through a null pointer.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define TRACED __attribute__((noipa, used))

volatile int sink;

TRACED void stop_here(void) { sink++; }

/* Pushes, and no unwind information says so. */
extern void undescribed(void);
__asm__(".text\n.type undescribed, @function\nundescribed:\n\tpush %rbx\n\tcall stop_here\n\tpop %rbx\n\tret\n"
        ".size undescribed, . - undescribed\n");

/* sub rsp, 8; movabs rax, stop_here; call rax; add rsp, 8; ret */
static void run_generated_code(void)
{
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *target = (void *)stop_here;
    memcpy(code, "\x48\x83\xec\x08\x48\xb8", 6);
    memcpy(code + 6, &target, 8);
    memcpy(code + 14, "\xff\xd0\x48\x83\xc4\x08\xc3", 7);
    ((void (*)(void))code)();
    sink++;
}

static ucontext_t context, back;
TRACED void context_body(void)
{
    stop_here();
    sink++;
}

static void run_context(void)
{
    getcontext(&context);
    context.uc_stack.ss_sp = malloc(65536);
    context.uc_stack.ss_size = 65536;
    context.uc_link = &back;
    makecontext(&context, context_body, 0);
    swapcontext(&back, &context);
}

/* A stack made by hand, with 0 for a return address in the middle of malloc's memory. */
TRACED void hand_made_body(void)
{
    stop_here();
    exit(0);
}

static void run_on_hand_made_stack(void)
{
    char *top = (char *)malloc(1 << 18) + (1 << 17);
    top = (char *)((unsigned long)top & ~15ul);
    __asm__ volatile("mov %0, %%rsp\n\tpushq $0\n\tjmp hand_made_body" : : "r"(top) : "memory");
}

TRACED void on_signal(int number)
{
    (void)number;
    stop_here();
    sink++;
}

static void run_handler_on_another_stack(void)
{
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
}

TRACED int deep(int n)
{
    if (n == 0)
        stop_here();
    return n ? deep(n - 1) + sink : sink;
}

TRACED void calls_null(void (*volatile nothing)(void))
{
    nothing();
    sink++;
}

int main(int argc, char **argv)
{
    switch (argc > 1 ? atoi(argv[1]) : 0) {
    case 0:
        undescribed();
        break;
    case 1:
        run_generated_code();
        break;
    case 2:
        run_context();
        break;
    case 3:
        run_on_hand_made_stack();
        break;
    case 4:
        run_handler_on_another_stack();
        break;
    case 5:
        sink = deep(3000);
        break;
    default:
        calls_null(0);
    }
    return 0;
}
