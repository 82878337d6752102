/*
 * A model of the hardware shadow stack (Intel SDM volume 1, chapter 17), kept for one thread by whoever single-steps it.
 *
 * The rules, instruction by instruction:
 *   call      pushes the return address (a near call to the next instruction is not pushed by hardware, nor here).
 *   ret       must go to the address on top, which is popped. Anything else is a mismatch: the hardware would raise #CP.
 *   unwinding longjmp and the C++ unwinder pop the shadow stack themselves (incssp) where it is on. Here it is off and they only
 *             move rsp. So within an unwinding module (libc, libgcc_s, libunwind, ld.so) an instruction that moves rsp above the
 *             place of the address on top, or a ret that goes elsewhere, pops all addresses below the new rsp; they are
 *             counted as unwound. No other code has that right: if it drops a return address, the next ret is a mismatch.
 *   signals   the kernel pushes a token and the address of the restorer; rt_sigreturn pops down to the token.
 *   contexts  setcontext and swapcontext change to another shadow stack (rstorssp). A ret of theirs that goes elsewhere
 *             picks the shadow stack on which the address it returns to is on top in the same place, else it goes up on
 *             the current one if that has addresses shortly above, else it begins a new one.
 * Where checking began in mid-program the addresses pushed before are unknown: a ret with nothing on the shadow stack is
 * counted as unknown.
 */
#ifndef CALLCHECK_MODEL_H
#define CALLCHECK_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct entry {
    uint64_t address; /* what a ret must go to; 0: a signal's token */
    uint64_t place;   /* where on the ordinary stack the call put it */
};

struct shadow {
    struct shadow *next;
    struct entry *entries;
    size_t count, room;
};

struct model {
    struct shadow *current;
    struct shadow *others; /* of contexts that are not running */
};

enum verdict { RETURN_MATCHES, RETURN_UNKNOWN, RETURN_MISMATCH };

void model_init(struct model *model);
void model_free(struct model *model);
void model_copy(struct model *to, const struct model *from);

void model_call(struct model *model, uint64_t address, uint64_t place);
/* A ret to `address`; only a match changes the model. */
enum verdict model_return(struct model *model, uint64_t address);

/* Pop what lies below `rsp`, as an unwinder does; how many addresses that were. */
size_t model_unwind(struct model *model, uint64_t rsp);
/* Whether rsp has left the address on top behind. */
int model_is_left_behind(const struct model *model, uint64_t rsp);

void model_signal(struct model *model, uint64_t restorer, uint64_t place);
void model_sigreturn(struct model *model);

/* A context switch has returned to `address`, which lay at `place`. */
void model_switch(struct model *model, uint64_t address, uint64_t place);

/* The address on top, 0 if there is none. */
uint64_t model_top(const struct model *model);

#endif
