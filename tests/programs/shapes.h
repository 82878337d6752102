/* For programs whose functions are written in assembly to have one exact shape at the entry. */
#ifndef SHADOWGRAPH_TEST_SHAPES_H
#define SHADOWGRAPH_TEST_SHAPES_H

#include "check.h"

/*
 * A function symbol with unwind information around BODY; nothing is added to the bytes. The compiler's section is restored
 * behind it: at -O0 it would else put its strings among the code.
 */
#define SHAPE_AT(ALIGN, NAME, BODY)                                                                                    \
    ".pushsection .text\n" ALIGN ".globl " NAME "\n.type " NAME ", @function\n" NAME ":\n.cfi_startproc\n" BODY         \
    ".cfi_endproc\n.size " NAME ", .-" NAME "\n.popsection\n"
#define SHAPE(NAME, BODY) SHAPE_AT(".p2align 4\n", NAME, BODY)
/* No padding between this function and the one before. */
#define SHAPE_PACKED(NAME, BODY) SHAPE_AT("", NAME, BODY)

#endif
