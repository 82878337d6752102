/*
 * The memory that agent and controller share: one memfd an executed program, mapped by all processes that fork from it.
 * Whatever must outlive a killed target (records, counters, calls in flight) is here; whatever must be copied by fork
 * (original return addresses, above all) is private to the agent: see native/agent/state.h.
 *
 *     0               ┌──────────────────────────┐
 *                     │ struct sg_arena          │ settings, doorbells
 *     threads_at      │ struct sg_shared_thread[]│ who records, and what was lost
 *     rings_at        │ struct sg_rings[]        │ what each recorder records into, and how
 *     segments_at     │ struct sg_segment[]      │ whose is which ring segment, of the first recorder's
 *     events_at       │ struct sg_event[]        │ what the agent asks of the controller
 *     chunks_at       │ struct sg_chunk[]        │ whose is which piece of the table of open calls
 *     open_at         │ struct sg_open[]         │ SG_BLOCK_FRAMES open calls for each chunk
 *     functions_at    │ struct sg_function[]     │ what is hooked, by number: thunks point here
 *     registry_at     │ struct sg_registry       │ who uses what is hooked (users.h)
 *     losses_at       │ struct sg_losses[][64]   │ what each thread has lost of each user's
 *     pages_at        │ struct sg_page[]         │ whose is which page of cells
 *     cells_at        │ cells                    │ SG_PAGE_CELLS for each page
 *     pool_at         │ predicates, ranks        │ SG_POOL_SIZE bytes that the controllers give to users
 *     values_at       │ uint32_t[], sg_values[]  │ what the first recorder captures, if it does
 *     data_at         │ records                  │ segment_size bytes for each segment
 *     size            ├──────────────────────────┤
 *                     │ segments, values, data   │ of each recorder that has come later: controllers make the file longer,
 *                     └──────────────────────────┘ and each process maps that part when it first records for it (rings.c)
 */
#ifndef SHADOWGRAPH_ARENA_H
#define SHADOWGRAPH_ARENA_H

#include <stdint.h>

#include "shadowgraph/users.h"

#define SG_ARENA_MAGIC 0x3176676873ull /* "shgv1" */
#define SG_BLOCK_FRAMES 32

#define SG_POLICY_BLOCK 0
#define SG_POLICY_DROP 1
#define SG_POLICY_OVERWRITE 2

struct sg_arena {
    uint64_t magic;
    uint64_t size;
    uint64_t threads_at, rings_at, segments_at, events_at, chunks_at, open_at, functions_at, data_at; /* offsets from the start */
    uint64_t registry_at, losses_at, pages_at, cells_at, pool_at, values_at;
    uint32_t threads, segments, events, chunks; /* how many */
    uint32_t segment_size;
    uint32_t answered;       /* futex: a controller adds one when it has answered an event */
    uint64_t tick_base;      /* rdtsc when the first recording began; starts count from here */
    uint32_t askers;         /* threads sleeping on answered */
    uint32_t page_end;       /* no page of cells has been used there or beyond */
    uint32_t bell;           /* futex: the agent adds one when it asks something; recorders have bells of their own */
    uint32_t waiting;        /* a controller sleeps on the bell */
    uint64_t missed;         /* calls missed by threads that have no entry in the table */
    uint64_t dropped;        /* records dropped for the same reason */
    uint64_t missed_in_vfork; /* of the missed ones: by children of vfork() whose parents had no entry either */
    uint64_t reserved[2];
};

/*
 * Recorders, up to so many at once. Each has one of the slots that SG_RING_OF_SLOT tells: the first one, which the plain
 * paths of the agent serve, or one of the last.
 */
#define SG_RECORDERS 8
#define SG_RECORDER_SLOTS 0xfe00000000000001ull

/*
 * What one recorder records into, and how: for each slot that it may have, found by the number of its rings (0 for slot 0,
 * SG_USERS - slot for the last ones). A recorder has all of its rings for itself; who comes later gets them with another
 * generation.
 */
struct sg_rings {
    uint64_t generation;     /* how many recorders have had them */
    uint64_t at, size;       /* the part of the arena's file that is theirs */
    uint64_t segments_at, values_at, data_at; /* from the start of the file; values_at 0: nothing is captured */
    uint32_t segments, segment_size;
    uint32_t policy;
    uint32_t recording;      /* 0: calls are not recorded any more (size limit reached, controller gone): dropped */
    uint32_t controller_pid; /* 0: nobody has them, or wants to know of threads and events */
    uint32_t heartbeat;      /* the controller adds one at least every 100 ms */
    uint32_t bell;           /* futex: the agent adds one when there is something to look at */
    uint32_t waiting;        /* the controller sleeps on the bell */
    uint32_t freed;          /* futex: the controller adds one when it has freed segments */
    uint32_t waiters;        /* threads sleeping on freed */
    uint32_t depth_limit;    /* 0: none; where the plain paths do not see to it */
    uint32_t unused;
    uint64_t minimal_ticks;  /* shorter calls are filtered; as above */
    uint64_t value_count;    /* how many struct sg_values there are */
    uint64_t reserved[3];
};

#define SG_THREAD_FREE 0
#define SG_THREAD_LIVE 1
#define SG_THREAD_DEAD 2 /* recorders take what is left, and the last one sets it free; without any it is free at once */

/* The bits of `inside` that say whose handler it is, with room for all slots + 1. The others are a multiple of 8. */
#define SG_INSIDE_SHIFT 7
#define SG_INSIDE_SLOT 127

struct sg_shared_thread {
    uint32_t state;
    uint32_t pid, tid;
    uint32_t parent_pid;
    uint64_t started, ended; /* ticks */
    uint64_t missed;         /* no room on the shadow stack, or not possible to hook this call */
    uint64_t dropped;        /* traced, but no room for the record */
    uint64_t filtered;       /* cut by depth or minimal time */
    uint64_t values_lost;    /* recorded, but without its captured values */
    char name[16];
    uint64_t inside;         /* the slot of the user whose handler it runs, + 1; or 0. From bit SG_INSIDE_SHIFT on: where on its stack */
    uint64_t unused;
    uint64_t busy;           /* the users for whom it does something right now, a bit for each slot */
    uint64_t busy_stack;     /* where on its stack it began to */
    uint8_t waits[SG_RECORDERS]; /* once it is dead: 1 for each recorder that has something to take of it yet */
    uint64_t reserved;
};

#define SG_SEGMENT_FREE 0
#define SG_SEGMENT_OWNED 1
#define SG_SEGMENT_FULL 2
#define SG_SEGMENT_KEPT 3 /* overwrite policy: full, kept by its thread for as long as there is room */

struct sg_segment {
    uint32_t state;
    uint32_t thread;   /* index into the table of threads */
    uint64_t sequence; /* of this thread: 0, 1, 2 ... */
    uint64_t opened;   /* ticks */
    uint32_t used;     /* bytes, once it is full */
    uint32_t pid;
    uint32_t without_call; /* places that hold no call of their own */
    uint32_t unused;
};

#define SG_EVENT_FREE 0
#define SG_EVENT_CLAIMED 1
#define SG_EVENT_ASKED 2

#define SG_EVENT_EXEC 1        /* about to replace the program: seize me. arguments: SG_EXEC_..., the function's first two */
#define SG_EVENT_EXEC_FAILED 2 /* no longer */
#define SG_EVENT_LOADED 3      /* the loader has mapped or unmapped objects */
#define SG_EVENT_ENTERED 4     /* a program was executed and one controller has entered it; those expected do so now */

struct sg_event {
    uint32_t state;
    uint32_t kind;
    uint32_t pid, tid;
    uint64_t arguments[4];
    uint64_t followed_by; /* SG_EVENT_EXEC: the controller that has seized the thread, and enters the new program */
    uint32_t heartbeat[SG_USERS]; /* of each user that is waited for, as it was seen last, */
    uint8_t still[SG_USERS]; /* and in how many looks it has been the same */
    uint8_t waits[SG_USERS]; /* 1 for each user that has not answered yet */
};

struct sg_chunk {
    uint32_t state;  /* 0 free, 1 taken */
    uint32_t thread; /* index into the table of threads */
};

/* A call in flight, beside its shadow frame: written at entry, function last; function 0: none. */
struct sg_open {
    uint64_t start;    /* as q0 of its record */
    uint64_t function; /* as the low bits of q1 of its record, and the marks below */
    uint64_t users;    /* with SG_OPEN_USERS: whose exit is to run; else that of slot 0 */
    uint64_t epoch;    /* with SG_OPEN_USERS: of the registry at the entry */
};
#define SG_OPEN_SLOW 0x8000000000000000ull   /* the plain return path is not enough */
#define SG_OPEN_VALUES 0x4000000000000000ull /* values have been captured at the entry */
#define SG_OPEN_USERS 0x2000000000000000ull  /* the members users and epoch hold */
#define SG_OPEN_MEASURED 0x1000000000000000ull /* there is one, and it measures (struct sg_registry) */
#define SG_OPEN_RECORDERS 0x0800000000000000ull /* as SG_OPEN_USERS, and all of them are recorders that the plain paths can serve */
#define SG_OPEN_FRUGAL 0x0400000000000000ull /* all of them have frugal handlers (struct sg_registry), or slot 0 and its recorder */
#define SG_OPEN_MARKS 0xffffffffff000000ull

#define SG_FUNCTIONS (1 << 19) /* functions that can be hooked in one process; memory is touched for those that are */
#define SG_FUNCTION_RECORD_SIZE 64

/*
 * What a thunk points r11 at: record number `id` of the table. It lies in shared memory, so that who is on a function is
 * changed by a store, in all processes at once, and a thread sees the old word or the new one, never half of one.
 */
struct sg_function {
    uint64_t enter; /* where its thunk jumps to: one of the agent's entry paths, or `body` if nobody wants its calls */
    uint64_t body;  /* where it goes on: r11 is given back, then the displaced instructions follow */
    uint32_t id;
    uint32_t flags;
    uint64_t users[2]; /* who wants its calls, a bit for each slot; which of the two counts, sg_registry.side tells */
    uint32_t cell;     /* number of its counter, 1 to SG_COUNTER_CELLS - 1; 0: none yet */
    uint32_t variant;  /* SG_FLAG_EXEC: which of the exec functions (SG_EXEC_...) */
    uint64_t recorders; /* where recorders alone want its calls: who they are, for the entry path that serves several */
    uint64_t callers;  /* which of the users want only calls that come from the executable */
};

#define SG_EXEC_EXECVE 0   /* (path, arguments, environment) */
#define SG_EXEC_EXECVEAT 1 /* (folder, path, arguments, environment, flags) */
#define SG_EXEC_FEXECVE 2  /* (file, arguments, environment) */

#define SG_FLAG_CALLER 1 /* trace only calls that come from the executable */
#define SG_FLAG_VALUES 2 /* a recorder captures arguments or results */
#define SG_FLAG_EXEC 4   /* an exec function: ask the controller before it runs; not recorded by itself */
#define SG_FLAG_LOADED 8 /* the loader's debug notification */
#define SG_FLAG_SILENT 16 /* hooked for our own needs alone: never recorded */
#define SG_FLAG_CLONE 32 /* clone(): a child that shares this thread's TLS must not share its state */
#define SG_FLAG_EXIT 256 /* _exit: what has been left without returning by then is over */
#define SG_FLAG_TRUE_RETURN 128 /* must find its true return address: reached by a tail call, it ends the calls before it */
#define SG_FLAG_SIGACTION 1024 /* sigaction: the program sees its own choices while the agent handles faults */
#define SG_FLAG_VECTORS 512 /* vector registers are looked at: by values to capture, or conditions */
#define SG_FLAG_EXECUTABLE 64 /* belongs to the executable itself: what it tail-calls was called by the executable */

/*
 * How to capture the values of one function: its items, those of the entry first. What is captured stands before the
 * call's record (SG_ESCAPE_VALUES) as words in the order of the items; a string is two words, the pointer and
 * length | flags << 32, and its bytes, filled up to whole words.
 */
#define SG_VALUE_INTEGER 1 /* general register or stack slot, 8 bytes */
#define SG_VALUE_VECTOR 2  /* vector register, low 8 bytes */
#define SG_VALUE_STRING 3  /* as INTEGER, and the bytes it points to */

#define SG_STRING_CUT 1 /* the string goes on behind these bytes */
#define SG_STRING_BAD 2 /* the pointer points nowhere */
#define SG_STRING_LIMIT 128

#define SG_PLACE_STACK 128 /* the n-th stack slot is SG_PLACE_STACK + n */

struct sg_value {
    uint8_t kind;
    uint8_t place; /* entry: number of the argument register of its class, or a stack slot; return: 0 rax or xmm0, 1 rdx or
                      xmm1 */
};

#define SG_VALUES_LIMIT 20

/* At values_at of a recorder's rings lies, by the numbers of functions, uint32_t[SG_FUNCTIONS]: which of these, from 1 on. */
struct sg_values {
    uint32_t entry, at_return; /* how many items of each */
    struct sg_value items[SG_VALUES_LIMIT];
};
#define SG_VALUES_SIZE ((4 + 48) * SG_FUNCTIONS)

/*
 * What a controller has put into a process, so that it or any other one can take it out again: written by controllers
 * while the process stands still, never read by the agent. Private memory, so that a forked child has its own.
 *
 * A patch holds what to put back; one whose address lies in a thunk makes that thunk do without what is put back elsewhere.
 * Patches also tell which functions are hooked in this process, and where: a forked child may have others at the same place
 * as its parent. A function is if all patches with its number are in place.
 * A move says where a thread that stands at `from` goes on when the patches are taken out, and by how much its stack
 * pointer grows then.
 */
struct sg_patch {
    uint64_t address;
    uint8_t size;
    uint8_t original[5], replacement[5];
    uint8_t is_entry; /* of all patches of a function, the one where its calls arrive */
    uint32_t number;  /* of the function that is hooked by it; 0: of none */
};

struct sg_move {
    uint64_t from, to;
    uint64_t grows;
};

#define SG_KEPT_LIMIT 4096
#define SG_KEPT_RETURNED_INTO 1 /* calls are made from these thunks: they stay for good */
#define SG_KEPT_TAKEN_OUT 2     /* its patches have been taken out */

struct sg_kept {
    uint64_t base, size; /* the mapping of thunks and function records; size 0: no entry */
    uint64_t patches, moves; /* these two in a mapping of their own, which begins with the patches */
    uint32_t patch_count, move_count;
    uint32_t flags, tables_size;
};

/* Settings and results of the agent, written into its data before sg_start is called. */
struct sg_settings {
    uint32_t segment_size;
    uint32_t segments;
    uint32_t threads;
    uint32_t chunks;
    uint64_t caller_low, caller_size; /* text of the executable */
    uint64_t minimal_ticks;           /* shorter calls are filtered by the plain paths */
    uint32_t depth_limit;             /* 0: none */
    uint32_t frame_limit;             /* 0: the whole pool; tests use a small one */
    uint32_t capture;                 /* values will be captured */
    uint32_t stacks_are_copied;       /* by greenlet: nothing about a slot proves a frame dead */
    uint64_t borrowed;                /* thread control block of the thread that a controller has load its handlers, or 0 */
    uint64_t loader_note;             /* struct r_debug, to look through when the loader has loaded something; or 0 */
    uint32_t ask_when_loaded;         /* the controller wants to hook what is loaded */
    uint32_t reserved;
    uint64_t tick_base;               /* 0: take the time now */
    uint64_t main_stack_end;
    /* Results: where the arena is mapped, where thunks jump to, and the zones that an unwinder must know (R25). */
    uint64_t arena;
    uint64_t resolver; /* uint64_t (*)(uint64_t slot): where the true return address of a slot is */
    uint64_t enter, enter_end, enter_aside, enter_aside_end;
    uint64_t enter_from_caller, enter_for_true_return, enter_general; /* see paths.S */
    uint64_t enter_count, enter_count_and_record, enter_measure, enter_recorders, enter_frugal;
    uint64_t leave, leave_end, leave_aside, leave_aside_end;
    uint64_t sites, frames, frame_count;
    uint64_t functions;   /* struct sg_function[SG_FUNCTIONS]: mapped once more at an address that stays when the arena is renewed */
    uint64_t kept;        /* struct sg_kept[SG_KEPT_LIMIT] */
    uint64_t guarded;     /* whether the agent handles the signals of faults (guard.c) */
    uint64_t thread_word; /* where a thread's word is, counted from its fs base; 0: it is the gs base */
};

#endif
