/* What the call/return checker must know of an instruction: whether it calls, returns enters the kernel or pushes the flags. */
#ifndef CALLCHECK_DECODE_H
#define CALLCHECK_DECODE_H

#include <stddef.h>

enum kind { KIND_OTHER, KIND_CALL, KIND_RETURN, KIND_SYSCALL, KIND_PUSH_FLAGS };

/* The kind of the x86-64 instruction at the start of `bytes`; anything that cannot be read is KIND_OTHER. */
enum kind instruction_kind(const unsigned char *bytes, size_t count);

#endif
