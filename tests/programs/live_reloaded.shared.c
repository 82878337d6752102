/* What live_reloaded.c loads. Its first calls are those of its constructor, its last ones those of its destructor. */
#include "check.h"

static long loaded;

TRACED long library_inner(long x)
{
    return x * 3 + loaded;
}

TRACED long library_tail(long x)
{
    return library_inner(x + 1);
}

TRACED long library_recurse(long depth)
{
    return depth == 0 ? 0 : 1 + library_recurse(depth - 1);
}

TRACED long library_function(long x)
{
    return library_tail(x) + library_recurse(x % 5) + 1;
}

TRACED long library_callee(long x)
{
    return x + 2;
}

/* A call at the very first byte, where it is hooked by a jump that shares its bytes with the call. */
extern long library_first_call(long x);
__asm__(".text\n.globl library_first_call\n.type library_first_call, @function\nlibrary_first_call:\n.cfi_startproc\n"
        "\tcall library_callee@plt\n\tadd $10, %rax\n\tret\n.cfi_endproc\n.size library_first_call, . - library_first_call\n");

__attribute__((constructor)) TRACED void library_start(void)
{
    loaded = 1;
    if (library_function(5) != 20)
        abort();
}

__attribute__((destructor)) TRACED void library_end(void)
{
    if (library_function(5) != 20)
        abort();
    loaded = 0;
}
