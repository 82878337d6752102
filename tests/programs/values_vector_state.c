/*
 * The whole vector state lives across a call of an assembly function that is known to touch none of it: 16 ymm registers
 * with their upper halves, or 32 zmm registers and the mask registers, bit for bit.
 */
#include "check.h"

static unsigned char before[32 * 64 + 64] __attribute__((aligned(64)));
static unsigned char after[32 * 64 + 64] __attribute__((aligned(64)));

extern void across_ymm(const void *before, void *after);
extern void across_zmm(const void *before, void *after);
extern void nothing(void);

asm(".pushsection .text\n"
    ".type nothing, @function\n"
    "nothing:\n"
    "  movl %eax, %eax\n"
    "  leaq 1(%rax), %rax\n"
    "  ret\n"
    ".size nothing, .-nothing\n"

    ".type across_ymm, @function\n"
    "across_ymm:\n"
    "  pushq %rsi\n"
    ".altmacro\n"
    ".macro load_ymm n\n  vmovdqa 64*\\n(%rdi), %ymm\\n\n.endm\n"
    ".macro store_ymm n\n  vmovdqa %ymm\\n, 64*\\n(%rsi)\n.endm\n"
    ".macro load_zmm n\n  vmovdqa64 64*\\n(%rdi), %zmm\\n\n.endm\n"
    ".macro store_zmm n\n  vmovdqa64 %zmm\\n, 64*\\n(%rsi)\n.endm\n"
    ".macro load_mask n\n  kmovw 2048+2*\\n(%rdi), %k\\n\n.endm\n"
    ".macro store_mask n\n  kmovw %k\\n, 2048+2*\\n(%rsi)\n.endm\n"
    ".macro each operation, first, last\n"
    "  \\operation \\first\n"
    "  .if \\last-\\first\n  each \\operation, %\\first+1, \\last\n  .endif\n"
    ".endm\n"
    "  each load_ymm, 0, 15\n"
    "  call nothing\n"
    "  popq %rsi\n"
    "  each store_ymm, 0, 15\n"
    "  vzeroupper\n"
    "  ret\n"
    ".size across_ymm, .-across_ymm\n"

    ".type across_zmm, @function\n"
    "across_zmm:\n"
    "  pushq %rsi\n"
    "  each load_zmm, 0, 31\n"
    "  each load_mask, 0, 7\n"
    "  call nothing\n"
    "  popq %rsi\n"
    "  each store_mask, 0, 7\n"
    "  each store_zmm, 0, 31\n"
    "  vzeroupper\n"
    "  ret\n"
    ".noaltmacro\n"
    ".size across_zmm, .-across_zmm\n.popsection\n");

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 100000);
    int has_avx2 = __builtin_cpu_supports("avx2") != 0, has_avx512 = __builtin_cpu_supports("avx512f") != 0;
    printf("avx2=%d\navx512=%d\n", has_avx2, has_avx512);
    for (size_t k = 0; k < sizeof before; k++)
        before[k] = (unsigned char)(k * 167 + 13);
    for (long i = 0; i < rounds; i++) {
        before[i % (long)sizeof before] ^= (unsigned char)i;
        if (has_avx512) {
            memset(after, 0, sizeof after);
            across_zmm(before, after);
            EXPECT(memcmp(before, after, 32 * 64 + 16) == 0);
        }
        if (has_avx2) {
            across_ymm(before, after);
            for (int n = 0; n < 16; n++)
                EXPECT(memcmp(before + 64 * n, after + 64 * n, 32) == 0);
        }
    }
    return finish();
}
