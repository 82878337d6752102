/*
 * Three layouts of what is kept of a call that several users want: docs/layouts.md. The paths in assembly (layouts_paths.S) save
 * what a real entry path must save, and call the leaf through a site, so that each ret goes where its call said.
 */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#define MOST 16 /* users */

/* struct user, struct chain_frame */
#define USER_SIZE 16
#define USER_ENTER 0
#define USER_LEAVE 8
#define CHAIN_SIZE 16
#define CHAIN_ORIGINAL 0
#define CHAIN_SLOT 8

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

struct user {
    int (*enter)(uint64_t *slot); /* whether it wants the exit of this call */
    void (*leave)(uint64_t *slot);
};

/* A frame for each user: whoever comes first in the chain has the caller's address, each other one that of a site. */
struct chain_frame {
    uint64_t original, slot;
};

/*
 * One frame, with a list of those whose exit is to run: generation << 8 | index. Frames are found by their sites, so they lie
 * at fixed distances, with room for all.
 */
struct list_frame {
    uint64_t original, slot, function, count;
    uint64_t users[MOST];
};

/* One frame, with a mask of them and the one epoch at which the call was entered. */
struct mask_frame {
    uint64_t original, slot, function, users, epoch;
};

extern struct user users[MOST];
extern struct chain_frame *chain_top;

long leaf(long x);
long enter_list(long x), enter_mask(long x);
extern long (*const chains[MOST + 1])(long x); /* by the number of users */
#endif
#endif
