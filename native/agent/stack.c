/* Which memory is the calling thread's own stack: asked rarely, when it must be known whether a frame is dead. */
#include "agent.h"

/* Reads one hexadecimal number; returns the place behind it. */
static const char *number(const char *text, const char *end, uint64_t *value)
{
    *value = 0;
    for (; text < end; text++) {
        uint32_t digit = *text >= '0' && *text <= '9' ? (uint32_t)(*text - '0') : *text >= 'a' && *text <= 'f' ? (uint32_t)(*text - 'a' + 10) : 16;
        if (digit == 16)
            break;
        *value = *value << 4 | digit;
    }
    return text;
}

/*
 * Finds the mapping that holds an address, and whether the one just below it is inaccessible (a guard). Reads
 * /proc/self/maps in pieces; 0 if it cannot be read or no mapping holds the address.
 */
int sg_find_mapping(uint64_t address, uint64_t *low, uint64_t *high, int *guarded)
{
    char buffer[256];
    long fd = sg_kernel3(KERNEL_open, "/proc/self/maps", 0x80000 /* O_CLOEXEC */, 0);
    if (fd < 0)
        return 0;
    uint64_t below_end = 0;
    int below_guard = 0, found = 0;
    long filled = 0;
    while (!found) {
        long got = sg_kernel3(KERNEL_read, fd, buffer + filled, sizeof buffer - (unsigned long)filled);
        if (got <= 0)
            break;
        filled += got;
        long line = 0;
        for (long i = 0; i < filled && !found; i++) {
            if (buffer[i] != '\n')
                continue;
            uint64_t from, to;
            const char *text = number(buffer + line, buffer + i, &from);
            text = number(text + 1, buffer + i, &to);
            found = address >= from && address < to;
            if (found) {
                *low = from;
                *high = to;
                *guarded = below_guard && below_end == from;
            }
            below_end = to;
            below_guard = text[1] == '-' && text[2] == '-';
            line = i + 1;
        }
        for (long i = line; i < filled; i++)
            buffer[i - line] = buffer[i];
        filled -= line;
        if (filled == sizeof buffer)
            filled = 128; /* only a path makes a line that long: drop some of it */
    }
    sg_kernel1(KERNEL_close, fd);
    return found;
}

/*
 * The stack of a thread that libc made ends at its thread control block (fs base); below it lies a guard. The main
 * thread's is where the kernel put it. A stack that is neither (handed in by the program, without a guard) stays
 * unknown, and so do those of coroutines.
 */
static void find_own_stack(struct sg_thread *thread)
{
    uint64_t control_block = thread->control_block, low, high;
    int guarded;
    thread->stack_low = thread->stack_high = 1;
    if (thread->tid == thread->shared->pid) {
        /* The kernel keeps at least 128 MiB below the top of the main stack free of other mappings (mmap_base). */
        thread->stack_high = sg_settings.main_stack_end;
        thread->stack_low = thread->stack_high - (128ull << 20);
    } else if (sg_find_mapping(control_block, &low, &high, &guarded) && guarded) {
        thread->stack_low = low;
        thread->stack_high = control_block;
    }
}

/*
 * Whether an address lies in the stack on which signals are handled now (sigaltstack). The kernel begins there at its top
 * again for each signal that does not interrupt a handler on it.
 */
int sg_on_signal_stack(uint64_t address)
{
    struct {
        uint64_t low;
        int flags;
        uint64_t size;
    } stack = {0, 0, 0};
    if (sg_kernel2(KERNEL_sigaltstack, 0, &stack) < 0)
        return 0;
    return address - stack.low < stack.size;
}

int sg_on_own_stack(struct sg_thread *thread, uint64_t address)
{
    if (!thread->stack_high)
        find_own_stack(thread);
    return address >= thread->stack_low && address < thread->stack_high;
}
