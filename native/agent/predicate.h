/* Evaluation of predicates: see shadowgraph/predicate.h. */
#ifndef SHADOWGRAPH_AGENT_PREDICATE_H
#define SHADOWGRAPH_AGENT_PREDICATE_H

#include "shadowgraph/predicate.h"

/*
 * Whether a program holds for a call: 1 or 0. Whatever its bytes are it ends, within 127 steps, and touches nothing but
 * its registers, `saved`, and memory that has been probed. It may make system calls if it reads memory, and none otherwise.
 */
__attribute__((visibility("hidden"))) int sg_predicate_holds(const struct sg_predicate *predicate,
                                                             const struct sg_predicate_input *input);

#endif
