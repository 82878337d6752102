/* One thread being stepped: what it was about to do, and how what it did is held against the model. */
#ifndef CALLCHECK_CHECKER_H
#define CALLCHECK_CHECKER_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/user.h>

#include "decode.h"
#include "model.h"

struct range { /* of a file, by offset: the code of setcontext and swapcontext */
    const char *file;
    uint64_t start, end;
};

struct rules {
    const char *unwinders[32]; /* beginnings of the names of files that may pop the shadow stack */
    int unwinder_count;
    struct range switches[8];
    int switch_count;
};

struct mismatch {
    pid_t tid;
    uint64_t pc, expected, actual;
    char file[256];
    uint64_t offset;
};

enum { MOST_MISMATCHES = 100 };

struct counts {
    uint64_t steps, calls, returns, unknown_returns, unwound, switches, signals, threads, mismatches;
    struct mismatch first[MOST_MISMATCHES];
};

struct thread {
    struct thread *next;
    pid_t tid, process;
    struct model model;
    int prepared; /* `before` and `kind` describe an instruction that is not known to be over */
    enum kind kind;
    struct user_regs_struct before;
};

/* Remember the instruction that `thread` is about to execute. */
void checker_prepare(struct thread *thread, const struct user_regs_struct *registers);

/* Hold what the prepared instruction did against the model. */
void checker_finish(struct thread *thread, const struct user_regs_struct *registers, const struct rules *rules,
                    struct counts *counts);

/* A signal was delivered; if `registers` show the first instruction of a handler, the model learns of its frame. */
void checker_signal(struct thread *thread, const struct user_regs_struct *registers, struct counts *counts);

void print_counts(FILE *file, const struct counts *counts, int exit_status, int limited);

#endif
