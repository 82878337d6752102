/*
 * At each instruction between two marks, an unwinder walks the stack from within: the program sets its own trap flag, and
 * the SIGTRAP handler calls _Unwind_Backtrace of the library that the first argument names. What must come out is known
 * without any unwind information: the handler sees every call and every return (of all but the agent, whose instructions do
 * not exist to the program), and below main is what the same unwinder has found before.
 *
 * To the file that the second argument names go `wrong MODULE OFFSET FOUND…` for each wrong walk, and at the end `steps N`,
 * `walks N` and how many walks were made in each module; `none` is memory of no module, where thunks are. The same place is
 * looked at no more than 8 times.
 *
 * SIGTRAP must not be blocked while the trap flag is set, or the kernel kills the program: a system call that is about to
 * block it is given another set of signals, and until it is open again nothing but step_… functions runs in the handler.
 * Without that, the handler's way to the unwinder leads through two functions that may be traced themselves (look_…).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#define TRACED __attribute__((noipa, used))
enum { DEPTH = 256, MODULES = 32, PLACES = 1 << 16, TIMES = 8, TRAP_FLAG = 0x100, SIGNAL_MASK_CALL = 14 };

typedef _Unwind_Reason_Code backtrace_function(_Unwind_Trace_Fn, void *);
typedef uintptr_t ip_function(struct _Unwind_Context *);

struct trace {
    int count;
    uintptr_t pc[DEPTH];
};

struct module {
    char name[64];
    uintptr_t base, low, high;
    long walks;
};

/* A call in flight: where its return address lies, and what that was before anybody put another into its place. */
struct call {
    uintptr_t slot, return_address;
};

static backtrace_function *step_walk;
static ip_function *step_ip;
static FILE *step_output;
static struct module modules[MODULES];
static int module_count;
static struct call calls[DEPTH];
static int depth;
static uintptr_t returning, last_pc, last_sp;
static struct trace below_main;
static struct {
    uintptr_t pc;
    int times;
} places[PLACES];
static long steps, walks;
static unsigned long open_set;
static int is_blocked;
static uintptr_t closed_set;
static volatile int stepping;
volatile long sink;
static jmp_buf landing;

/* --- what is where --- */

static int step_note_module(struct dl_phdr_info *information, size_t size, void *unused)
{
    struct module *module = &modules[module_count];
    const char *slash = strrchr(information->dlpi_name, '/');
    (void)size;
    (void)unused;
    for (int i = 0; i < information->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &information->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X) || module_count == MODULES)
            continue;
        snprintf(module->name, sizeof module->name, "%s", module_count ? slash ? slash + 1 : information->dlpi_name : "program");
        module->base = information->dlpi_addr;
        module->low = information->dlpi_addr + header->p_vaddr;
        module->high = module->low + header->p_memsz;
        module_count++;
        break;
    }
    return 0;
}

/* The module of an address; the last, nameless one for memory of none. */
static struct module *step_module(uintptr_t address)
{
    int i = 0;
    while (i < module_count && (address < modules[i].low || address >= modules[i].high))
        i++;
    return &modules[i];
}

static int step_in_agent(uintptr_t address)
{
    return strcmp(step_module(address)->name, "agent.so") == 0;
}

/* --- the oracle --- */

static int step_is_return(uintptr_t pc)
{
    const unsigned char *code = (const unsigned char *)pc;
    return code[0] == 0xc3 || ((code[0] == 0xf3 || code[0] == 0xf2) && code[1] == 0xc3);
}

static void step_follow(uintptr_t pc, uintptr_t sp)
{
    uintptr_t top = *(uintptr_t *)sp;
    if (last_pc && !step_in_agent(last_pc)) {
        if (sp == last_sp - 8 && top > last_pc && top <= last_pc + 7)
            calls[depth++] = (struct call){sp, top};
        else if (step_is_return(last_pc) && depth && calls[depth - 1].slot == last_sp)
            returning = calls[--depth].return_address;
    }
    if (!step_in_agent(pc)) {
        returning = 0;
        while (depth && calls[depth - 1].slot < sp)
            depth--;
    }
    last_pc = pc;
    last_sp = sp;
}

/*
 * From the end: what is below main, the calls in flight, the place returned to, and the place itself. The agent's frames
 * (sites, and those at the place) lie between these and mean nothing to the program.
 */
static int step_is_right(const struct trace *found, uintptr_t pc)
{
    uintptr_t expected[2 * DEPTH];
    int count = 0, at = 0;
    expected[count++] = pc;
    if (returning)
        expected[count++] = returning;
    for (int i = depth; i-- > 0;)
        expected[count++] = calls[i].return_address;
    for (int i = 0; i < below_main.count; i++)
        expected[count++] = below_main.pc[i];
    while (at < found->count && found->pc[at] != pc)
        at++;
    for (int i = 0; i < count; i++, at++) {
        while (i && at < found->count && step_in_agent(found->pc[at]))
            at++;
        if (at >= found->count || found->pc[at] != expected[i])
            return 0;
    }
    return at == found->count;
}

/* --- each step --- */

static _Unwind_Reason_Code step_note(struct _Unwind_Context *context, void *argument)
{
    struct trace *trace = argument;
    if (trace->count < DEPTH)
        trace->pc[trace->count++] = step_ip(context);
    return _URC_NO_REASON;
}

static int step_is_wanted(uintptr_t pc)
{
    for (uint32_t i = (uint32_t)((pc * 0x9e3779b97f4a7c15u) >> 40) % PLACES;; i = (i + 1) % PLACES) {
        if (!places[i].pc)
            places[i].pc = pc;
        if (places[i].pc == pc)
            return places[i].times++ < TIMES;
    }
}

__attribute__((noipa)) static void step_look(uintptr_t pc)
{
    struct trace found = {0};
    struct module *module = step_module(pc);
    step_walk(step_note, &found);
    walks++;
    module->walks++;
    if (step_is_right(&found, pc))
        return;
    fprintf(step_output, "wrong %s %lx depth %d", module->name, pc - module->base, depth);
    for (int i = 0; i < found.count; i++)
        fprintf(step_output, " %s+%lx", step_module(found.pc[i])->name, found.pc[i] - step_module(found.pc[i])->base);
    fputc('\n', step_output);
}

static void step_keep_trap_open(greg_t *registers)
{
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (closed_set)
        registers[REG_RSI] = (greg_t)closed_set;
    closed_set = 0;
    if (code[0] != 0x0f || code[1] != 0x05 || registers[REG_RAX] != SIGNAL_MASK_CALL || registers[REG_RDI] > 2 || !registers[REG_RSI])
        return;
    closed_set = (uintptr_t)registers[REG_RSI];
    open_set = *(unsigned long *)closed_set & ~(1ul << (SIGTRAP - 1));
    is_blocked = open_set != *(unsigned long *)closed_set;
    registers[REG_RSI] = (greg_t)(uintptr_t)&open_set;
}

TRACED long look_further(uintptr_t pc)
{
    step_look(pc);
    return 1;
}

TRACED long look_around(uintptr_t pc) { return look_further(pc) + 1; }

static void step_handler(int number, siginfo_t *information, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t pc = (uintptr_t)registers[REG_RIP];
    (void)number;
    (void)information;
    steps++;
    step_keep_trap_open(registers);
    step_follow(pc, (uintptr_t)registers[REG_RSP]);
    if (!stepping)
        registers[REG_EFL] &= ~TRAP_FLAG;
    else if (!step_is_wanted(pc))
        return;
    else if (is_blocked)
        step_look(pc);
    else
        look_around(pc);
}

/* --- what is walked through --- */

TRACED long leaf(long n) { return n + 1; }

TRACED long pushes(long n, long m)
{
    volatile char room[200];
    room[n & 63] = (char)m;
    return leaf(n) + leaf(m) + room[n & 63];
}

/* A call among the first instructions, which is made from its place. */
extern long calls_second(long n);
__asm__(".text\n.type calls_second, @function\ncalls_second:\n.cfi_startproc\n\tsub $8, %rsp\n.cfi_def_cfa_offset 16\n"
        "\tcall leaf\n\tadd $8, %rsp\n.cfi_def_cfa_offset 8\n\tret\n.cfi_endproc\n.size calls_second, . - calls_second\n");

TRACED long through_pointer(long (*function)(long), long n) { return function(n) + 1; }

TRACED long tail_last(long n) { return n * 3; }
TRACED long tail_middle(long n) { sink = n; return tail_last(n + 1); }
TRACED long tail_first(long n) { sink = n + 1; return tail_middle(n + 2); }

TRACED long recurse(long n) { return n ? recurse(n - 1) + leaf(n) : 0; }

TRACED void jumps(void) { longjmp(landing, 1); }
TRACED void leaves(long n)
{
    if (n)
        leaves(n - 1);
    else
        jumps();
    sink = n;
}
TRACED void returns_over_dead(void)
{
    if (!setjmp(landing))
        leaves(3);
    sink = leaf(2);
}

TRACED void fill_ring(long n)
{
    for (long i = 0; i < n; i++)
        sink += leaf(i);
}

TRACED void downwards(void)
{
    __asm__ volatile("std");
    sink = tail_first(1);
    __asm__ volatile("cld");
}

TRACED void scenario(void)
{
    sink = pushes(2, 3);
    sink = through_pointer(leaf, 4);
    sink = calls_second(1);
    sink = tail_first(5);
    sink = recurse(34);
    fill_ring(80);
    returns_over_dead();
    downwards();
    sink = leaf(6);
}

__attribute__((noipa)) static void step_find_below_main(void)
{
    struct trace found = {0};
    uintptr_t main_at = (uintptr_t)__builtin_return_address(0);
    int i = 0;
    step_walk(step_note, &found);
    while (i < found.count && found.pc[i] != main_at)
        i++;
    for (i++; i < found.count; i++)
        if (!step_in_agent(found.pc[i]))
            below_main.pc[below_main.count++] = found.pc[i];
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = step_handler, .sa_flags = SA_SIGINFO};
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library)
        return 2;
    step_walk = (backtrace_function *)dlsym(library, "_Unwind_Backtrace");
    step_ip = (ip_function *)dlsym(library, "_Unwind_GetIP");
    step_output = fopen(argv[2], "w");
    if (!step_walk || !step_ip || !step_output)
        return 2;
    dl_iterate_phdr(step_note_module, NULL);
    strcpy(modules[module_count].name, "none");
    step_find_below_main();
    sigaction(SIGTRAP, &action, NULL);
    stepping = 1;
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc");
    scenario();
    stepping = 0;
    __asm__ volatile("nop\n\tnop");
    fprintf(step_output, "below %d\nsteps %ld\nwalks %ld\n", below_main.count, steps, walks);
    for (int i = 0; i <= module_count; i++)
        if (modules[i].walks)
            fprintf(step_output, "walked %s %ld\n", modules[i].name, modules[i].walks);
    return fclose(step_output) != 0;
}
