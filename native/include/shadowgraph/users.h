/*
 * The users of a process's functions, and what they count: the registry that the agent and any number of controllers share.
 * It lies in the arena (arena.h). Controllers change it one at a time (a lock on the arena's file, which a dead one gives
 * back); the agent only reads it, but for `faulted`.
 *
 * A call belongs to the users whose bit is set in its function's record and in `armed`. Those whose exit is to run are noted
 * beside the call, together with the `epoch` that its entry has read. A slot's user has an epoch of its own, that of its
 * registration: an exit runs for a user that is still `live` and not younger than the call. So a slot's new owner never gets
 * an exit of the old one's, however often it changes hands, and whoever unregisters may go at once (R10, R11).
 *
 * An entry reads epoch, side, masks, armed, and epoch again: what it has read belongs to one epoch. A controller that registers a
 * user adds one to the epoch first, and arms the slot last; one that exchanges a filter goes over to the other side, adds
 * one to the epoch, and then writes the masks of the side that was.
 */
#ifndef SHADOWGRAPH_USERS_H
#define SHADOWGRAPH_USERS_H

#include <stdint.h>

#define SG_USERS 64
#define SG_NOBODY 0xffffffffffffffffull /* an epoch that no call has */

#define SG_USER_FREE 0
#define SG_USER_RECORDER 1  /* a record of each call */
#define SG_USER_COUNTER 2   /* one cell a function: calls */
#define SG_USER_TOTALS 3    /* SG_TOTALS_CELLS cells a function */
#define SG_USER_HISTOGRAM 4 /* SG_HISTOGRAM_CELLS cells a function */
#define SG_USER_HANDLER 5   /* code of its own at entry and exit */
#define SG_USER_EXPECTED 6  /* no user: stands for a controller that is to enter this program, too (SG_EVENT_ENTERED) */

#define SG_VALUE_DURATION 0 /* what a histogram shows: ticks from entry to exit, */
#define SG_VALUE_RESULT 1   /* what the function returns (rax), */
#define SG_VALUE_ARGUMENT 2 /* or an integer argument at the entry: SG_VALUE_ARGUMENT + n, n below SG_PREDICATE_ARGUMENTS */
#define SG_VALUE_SOURCE 0xff         /* the part of a value that says which of them; */
#define SG_VALUE_BITS_SHIFT 8        /* in the next byte: how many of its low bits count, 0 or 64: all; */
#define SG_VALUE_UNSIGNED 0x10000    /* they have no sign */
#define SG_VALUE_FLOAT 0x20000       /* a double, of 32 bits a float: the result in xmm0, or argument n in xmm n, n below 8 */

struct sg_user {
    uint32_t kind;
    uint32_t value;          /* histogram */
    uint32_t controller_pid; /* as it is known where it runs */
    uint32_t data_size;      /* handler */
    uint64_t controller_start; /* the controller's start time: another process may have its pid by now */
    uint64_t entry, exit;    /* handler: addresses in the process, or 0 */
    uint64_t entry_predicate, exit_predicate; /* places in the pool, or 0 */
    uint64_t first_cell, cell_count; /* counter, totals, histogram: its cells */
    /*
     * Place in the pool: uint32_t[], the first of its own cells for a function, by the function's cell; 0: it has none. The first
     * word says how many words there are. A user that goes over to other functions gets another table, with more.
     */
    uint64_t cell_table;
    uint64_t pool_at, pool_size; /* its part of the pool */
    uint64_t parts;          /* place in the pool of its newest struct sg_user_part, or 0 */
    uint32_t flags;
    uint32_t fault;          /* the signal that its handler has died of, or 0 */
    uint64_t fault_address;
    uint64_t code_number;    /* handler: what tells its code from all others, never 0; see sg_handlers_here */
    uint64_t code, code_size; /* handler: where its code lies; 0: the loader knows */
    uint64_t events;         /* handler: place of its struct sg_event_ring in the pool, or 0 */
    uint64_t instances_at;   /* handler: place of its struct sg_instances in the pool, or 0 */
    uint32_t instances, instance_size; /* how many there are, of so many bytes each */
    uint32_t heartbeat;      /* the controller of a user that answers events adds one at least every 100 ms */
    uint32_t controller_thread; /* its thread that registers users: a process may have several controllers */
    char name[32];
    char filter[96];
};

/*
 * flags: taken off by somebody else than its controller. No call reaches it any more; what it has counted stays where it is
 * until its controller has read it and frees the slot, or is dead. What a counter without a condition has then seen in the
 * cells that it shares lies in its part of the pool, uint64_t by its functions' numbers.
 */
#define SG_USER_ENDED 0x80000000u

/*
 * flags: taken off, but there may be a thread that is still doing something for it (struct sg_shared_thread: busy). Its slot, its
 * cells and its part of the pool are nobody else's until there is none.
 */
#define SG_USER_LEFT 0x40000000u

/*
 * flags: answers events (struct sg_event): wants functions of libraries that are loaded later, or to go along when the process
 * executes another program. A thread that does so goes on when all such users have seen to it.
 */
#define SG_USER_FOLLOWS 0x20000000u
#define SG_USER_FOLLOWS_EXEC 0x10000000u

/* What a user has been given after its registration: cells, and this place in the pool, with a table of cells behind it. */
struct sg_user_part {
    uint64_t next; /* the one before, or 0 */
    uint64_t pool_at, pool_size;
    uint64_t first_cell, cell_count;
    uint64_t reserved[3];
};

#define SG_USER_VECTORS 1 /* flags: its handlers may use vector registers and floating point */
#define SG_USER_SEES_VECTORS 2 /* they, or its condition, look at those of the program */
#define SG_USER_ENTRY_LOOKS 4 /* its entry handler looks at the call, */
#define SG_USER_EXIT_LOOKS 8 /* its exit handler does: else a frugal one (struct sg_registry) is told nothing */
#define SG_DATA_LIMIT 1024 /* bytes that a user may keep of a call */
#define SG_FRUGAL_DATA_LIMIT 1856 /* those that all users with frugal handlers keep together, each a multiple of 16 */

/*
 * What is larger than that: instances, which the calls of all threads and processes share. A call has one from its entry to its
 * end; if none is free, the user misses it (R14). In the pool: this head, then for each instance whose it is, 0 if nobody's
 * (uint64_t: the process << 32 | the number of the call's frame + 1), then, from a multiple of SG_INSTANCE_STEP on, the
 * instances, each at such a multiple. See native/agent/instances.c.
 */
struct sg_instances {
    uint64_t full; /* ticks: when none was found free; 0: some may be */
    uint64_t unused[7];
};
#define SG_INSTANCE_STEP 64
#define SG_INSTANCE_LIMIT 65536      /* bytes of one, */
#define SG_INSTANCES_LIMIT 65536     /* how many a user has, */
#define SG_INSTANCES_SIZE 0x8000000 /* and their bytes together */

/* Records on their way from handlers to Python: see native/agent/emitting.c. */
struct sg_event_ring {
    uint64_t size;
    uint64_t head, tail; /* bytes since the beginning: reserved by threads, taken by the controller */
    uint64_t dropped;
};
#define SG_EVENT_READY 0x8000000000000000ull
#define SG_EVENT_SKIP 0x4000000000000000ull /* nothing: the rest of the ring is too short for the next one */
#define SG_EVENT_HEAD 24
#define SG_EVENT_LIMIT 4096

/*
 * In private memory of each process (the agent's sg_handlers_here): whose handlers are in it. `numbers` tells of each slot: the
 * code_number of the user whose handlers are. A child that was forked before they came does not have them, one that is forked
 * later has. `epoch` is that of the last ones that came: all users with handlers of an epoch up to that are here, without a look at
 * the numbers.
 */
struct sg_handlers_here {
    uint64_t epoch;
    uint64_t numbers[SG_USERS];
};

struct sg_registry {
    uint32_t side; /* which of a function's two masks counts: a filter is exchanged for all functions at once */
    uint32_t has_order; /* the order of registration is not that of the slots */
    uint64_t epoch;
    uint64_t armed;       /* entries */
    uint64_t live;        /* exits */
    uint64_t faulted;     /* the agent's own: users whose handler has died */
    uint64_t at_entry;    /* users that have something to do at the entry */
    uint64_t at_exit;     /* users that may want the exit */
    uint64_t with_data;   /* users that keep something from entry to exit */
    uint64_t conditional; /* users with a predicate */
    uint64_t counters;    /* counters without a condition: they share one cell of each function, struct sg_function's */
    uint64_t recorders;   /* those of the slots for recorders (arena.h) that have, or had last, a recorder */
    uint64_t limited;     /* recorders with a limit of depth or time that the plain paths do not see to */
    uint64_t epochs[SG_USERS];
    uint8_t order[SG_USERS]; /* slots in the order of registration, for controllers; the agent goes by the epochs */
    uint32_t next_function;  /* the first number that no function has yet */
    uint32_t next_cell;      /* the first cell number that no function has yet */
    uint64_t with_instances; /* users whose calls have instances */
    uint64_t timed;       /* users of whose calls the start is timed: for the others the clock is not looked at */
    uint64_t simple;      /* users without a condition, and the like: see quick.c */
    uint64_t measures;    /* of the simple ones, those that want the exit and the time, and nothing at the entry */
    uint64_t frugal;      /* of the simple ones, handlers with an exit that call nothing and change few registers: frugal.h */
    uint64_t timed_at_exit; /* users of whose calls the end is timed */
    uint64_t told_time;   /* users whose entry handler looks at the clock */
    uint64_t told_at_entry; /* users with SG_USER_ENTRY_LOOKS, */
    uint64_t told_at_exit;  /* and with SG_USER_EXIT_LOOKS */
    uint64_t quick_frugal; /* `frugal`, but nobody as long as has_order or with_instances say that their paths are not enough */
    /* All but those of them that have a handler at this end which looks neither at the call nor at the clock, and keep nothing. */
    uint64_t loud_at_entry, loud_at_exit;
    /*
     * From which epoch on calls are those of a slot's user: `epochs`, or SG_NOBODY if it is not live or its handler has died. One
     * comparison tells the paths of frugal handlers what `live`, `faulted` and `epochs` say together.
     */
    uint64_t since[SG_USERS];
    struct sg_user users[SG_USERS];
};

/*
 * Cells: 64-bit numbers that only one thread adds to. Cell n of a thread lies in its page n / SG_PAGE_CELLS, which it takes
 * from the pool of pages when it first needs it. The cells of all threads with the same number make one value: what each has
 * is added up (a maximum: the largest). A dead thread's page waits for the next one that needs this number.
 */
#define SG_PAGE_CELLS 512
#define SG_PAGES 16384
#define SG_PAGE_NUMBERS (1 << 17) /* a process has no more different pages; each thread has a word for each of them */
#define SG_COUNTER_CELLS (1 << 20) /* the first ones: counters of calls that all counters without a condition share */

#define SG_PAGE_FREE 0
#define SG_PAGE_ORPHAN 1  /* its thread is gone */
#define SG_PAGE_CLAIMED 2
#define SG_PAGE_USED 3

struct sg_page {
    uint32_t state;
    uint32_t number;
    uint32_t thread; /* index into the table of threads */
    uint32_t pid;
};

#define SG_TOTALS_CELLS 4 /* the largest value is not below 0 */
#define SG_HISTOGRAM_CELLS 512 /* of a value that may be negative twice as many: then ~value for those below 0 */
#define SG_CELL_COUNT 0 /* totals and histograms begin with these */
#define SG_CELL_SUM 1
#define SG_CELL_MAXIMUM 2
#define SG_CELL_BUCKETS 4
/*
 * Of floating-point values the sum is a double, the maximum a number in the order of the doubles. Finite ones are counted in
 * the first cell, others in the last ones. Totals have this page alone. Behind it a histogram has buckets for values above 0, from
 * 2**(exponent - 1023) on, and as many for those below 0; what is nearer to 0 or further from it is in the first or the last one.
 */
#define SG_FLOAT_HISTOGRAM_CELLS 4608
#define SG_CELL_ZEROS 3
#define SG_CELL_INFINITY 4
#define SG_CELL_MINUS_INFINITY 5
#define SG_CELL_NAN 6
#define SG_FLOAT_BUCKETS 2048
#define SG_FLOAT_EXPONENT 895
#define SG_BUCKET_BITS 3 /* eight buckets to a power of two; values below sixteen have one each */

/* What users have lost, thread by thread and user by user; of a recorder in slot 0 see struct sg_shared_thread. */
struct sg_losses {
    uint64_t missed;   /* calls that were theirs, but could not be served */
    uint64_t dropped;  /* no room for the record */
    uint64_t filtered; /* a condition was not met */
    uint64_t unwound;  /* the call was left without returning: no exit */
};

#define SG_POOL_SIZE (144 << 20) /* memory is touched for what is given away */

#endif
