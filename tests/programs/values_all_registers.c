/*
 * Every general register and the flags: what the callee sees is what the caller had, what the caller gets back is what
 * the callee left. The caller loads all fifteen and the flags (direction flag included), calls; the callee stores them,
 * loads others, returns; the caller stores those.
 */
#include "check.h"

enum { REGISTERS = 15, FLAGS = 15, SLOTS = 16 };
#define STATUS_FLAGS 0xcd5L /* OF DF SF ZF AF PF CF */

long given[SLOTS], seen[SLOTS], left[SLOTS], received[SLOTS];

extern void call_observe(void);
extern void observe(void);

#define EACH(OPERATION, ARRAY)                                                                                         \
    OPERATION(ARRAY, 0, rax) OPERATION(ARRAY, 1, rcx) OPERATION(ARRAY, 2, rdx) OPERATION(ARRAY, 3, rbx)                \
    OPERATION(ARRAY, 4, rbp) OPERATION(ARRAY, 5, rsi) OPERATION(ARRAY, 6, rdi) OPERATION(ARRAY, 7, r8)                 \
    OPERATION(ARRAY, 8, r9) OPERATION(ARRAY, 9, r10) OPERATION(ARRAY, 10, r11) OPERATION(ARRAY, 11, r12)               \
    OPERATION(ARRAY, 12, r13) OPERATION(ARRAY, 13, r14) OPERATION(ARRAY, 14, r15)
#define STORE(ARRAY, N, R) "  movq %" #R ", " ARRAY "+8*" #N "(%rip)\n"
#define LOAD(ARRAY, N, R) "  movq " ARRAY "+8*" #N "(%rip), %" #R "\n"
#define LOAD_FLAGS(ARRAY) "  pushq " ARRAY "+8*15(%rip)\n  popfq\n"
#define STORE_FLAGS(ARRAY) "  pushfq\n  popq " ARRAY "+8*15(%rip)\n"

asm(".pushsection .text\n"
    ".type call_observe, @function\n"
    "call_observe:\n"
    "  pushq %rbx\n  pushq %rbp\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    LOAD_FLAGS("given") EACH(LOAD, "given")
    "  call observe\n"
    EACH(STORE, "received") STORE_FLAGS("received")
    "  cld\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbp\n  popq %rbx\n"
    "  ret\n"
    ".size call_observe, .-call_observe\n"
    ".type observe, @function\n"
    "observe:\n"
    EACH(STORE, "seen") STORE_FLAGS("seen")
    LOAD_FLAGS("left") EACH(LOAD, "left")
    "  ret\n"
    ".size observe, .-observe\n.popsection\n");

static unsigned long random_state = 88172645463325252UL;

INLINED long next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (long)random_state;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 500000);
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < REGISTERS; k++) {
            given[k] = next_random();
            left[k] = next_random();
        }
        given[FLAGS] = (next_random() & STATUS_FLAGS) | 0x202;
        left[FLAGS] = (next_random() & STATUS_FLAGS) | 0x202;
        call_observe();
        for (int k = 0; k < REGISTERS; k++) {
            EXPECT(seen[k] == given[k]);
            EXPECT(received[k] == left[k]);
        }
        EXPECT((seen[FLAGS] & STATUS_FLAGS) == (given[FLAGS] & STATUS_FLAGS));
        EXPECT((received[FLAGS] & STATUS_FLAGS) == (left[FLAGS] & STATUS_FLAGS));
    }
    return finish();
}
