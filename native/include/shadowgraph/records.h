/*
 * The raw record of a call, as the agent writes it into a ring and as the spool of a trace keeps it.
 * Shared by the agent (C and assembly), the column loops (C) and Python (src/shadowgraph/agent/layout.py is generated
 * from these macros by native/generate_layout.py; a test holds the two equal).
 *
 * One call, written at its exit, 16 bytes (design: section 7):
 *
 *      63        48 47                                            0
 *     ┌────────────┬───────────────────────────────────────────────┐
 *  q0 │ depth      │ start: ticks since the tick base, modulo 2^48 │
 *     ├────────────┴─────────────────────────┬─────────────────────┤
 *  q1 │ duration in ticks, 40 bits           │ function, 24 bits   │
 *     └──────────────────────────────────────┴─────────────────────┘
 *      63                                  24 23                  0
 *
 * q0 is a sum, (depth << 48) + start, modulo 2^64: when a recording is older than 2^48 ticks (26 hours at 3 GHz), the start
 * carries into the depth, and who knows the whole start takes it off again.
 *
 * Function 0 is nobody's: a call that a forked child inherited from its parent ends with function 0 and is to be
 * skipped. q0 == q1 == 0 is a place that was never written (or reserved by a call that was killed before it wrote).
 * Records of one thread lie in the order of their exits.
 *
 * Functions from SG_ESCAPE_FIRST on are escapes. An escape stands before the record it speaks of:
 *   LONG    q0 is the whole duration in ticks; the 40 bits of the record that follows are to be ignored.
 *   KIND    the parameter (q1 >> 24) is the kind of the record that follows (SG_KIND_...).
 *   VALUES  parameter: n; n * 16 bytes of captured arguments and results follow, then the record they belong to.
 */
#ifndef SHADOWGRAPH_RECORDS_H
#define SHADOWGRAPH_RECORDS_H

#define SG_RECORD_SIZE 16
#define SG_START_BITS 48
#define SG_DEPTH_BITS 16
#define SG_FUNCTION_BITS 24
#define SG_DURATION_BITS 40

#define SG_FUNCTION_NONE 0
#define SG_ESCAPE_FIRST 0xffff00
#define SG_ESCAPE_LONG 0xffff01
#define SG_ESCAPE_KIND 0xffff02
#define SG_ESCAPE_VALUES 0xffff03

#define SG_KIND_RETURNED 0 /* the call returned to its caller */
#define SG_KIND_UNWOUND 1  /* left by an exception, longjmp, pthread_exit or thread death; ends where it was noticed */
#define SG_KIND_TAIL 2     /* left by a tail call, and its time ends there (only beyond the tail-chain limit) */
#define SG_KIND_OPEN 3     /* still in flight when the recording ended; ends with the recording */

#endif
