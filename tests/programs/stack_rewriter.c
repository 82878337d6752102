/*
 * Does to its own return addresses what other tracers do: a function puts a trampoline's address into its slot, one of this
 * file or one made at run time, and while `stop_here` runs an unwinder must notice. `copies` pushes its own return address
 * once more, as code does that looks at it and acts upon it. The first argument chooses.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TRACED __attribute__((noipa, used))

extern char trampoline[], trampoline_end[];
void *saved;
volatile int sink;

__asm__(".text\n.type trampoline, @function\n.globl trampoline\ntrampoline:\n\tjmp *saved(%rip)\n.size trampoline, . - trampoline\n"
        ".globl trampoline_end\ntrampoline_end:\n");

TRACED void stop_here(void) { sink++; }

TRACED __attribute__((optimize("no-omit-frame-pointer"))) void rewrites(void *replacement)
{
    void **slot = (void **)__builtin_frame_address(0) + 1;
    saved = *slot;
    *slot = replacement;
    stop_here();
    sink++;
}

/* movabs rax, &saved; jmp [rax] */
static void *made_at_run_time(void)
{
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *where = &saved;
    memcpy(code, "\x48\xb8", 2);
    memcpy(code + 2, &where, 8);
    memcpy(code + 10, "\xff\x20", 2);
    return code;
}

TRACED void tells_apart(void)
{
    sink = 7;
    stop_here();
    sink++;
}

TRACED void *peeks(void **frame) { return frame[1]; }

/* Leaves for good: what it has copied must not be returned to twice. */
TRACED __attribute__((optimize("no-omit-frame-pointer"))) void copies(void)
{
    void *own = peeks(__builtin_frame_address(0));
    __asm__ volatile("push %0\n\tjmp stop_here" : : "r"(own));
    __builtin_unreachable();
}

int main(int argc, char **argv)
{
    int choice = argc > 1 ? atoi(argv[1]) : 0;
    if (choice == 0)
        tells_apart();
    else if (choice == 1)
        rewrites(trampoline);
    else if (choice == 2)
        rewrites(made_at_run_time());
    else
        copies();
    return 0;
}
