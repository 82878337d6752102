/* Brings the agent to life in the target: called once by the controller, before any function is hooked. */
#include "agent.h"

struct sg_settings sg_settings;
struct sg_arena *sg_arena;
struct sg_shared_thread *sg_shared_threads;
struct sg_rings *sg_rings;
struct sg_event *sg_events;
struct sg_chunk *sg_chunks;
struct sg_open *sg_open_calls;
struct sg_function *sg_functions;
struct sg_registry *sg_registry;
struct sg_losses *sg_losses;
struct sg_page *sg_pages;
uint64_t *sg_cells;
char *sg_pool;
struct sg_thread *sg_threads;
uint64_t sg_caller_low, sg_caller_size, sg_minimal_ticks;

#define EVENTS 64
#define PAGE 4096ull
#define FUNCTIONS_SIZE (sizeof(struct sg_function) * SG_FUNCTIONS)

static uint64_t reserve(uint64_t *end, uint64_t size)
{
    uint64_t at = *end;
    *end = (at + size + PAGE - 1) & ~(PAGE - 1);
    return at;
}

static uint64_t lay_out(struct sg_arena *arena)
{
    uint64_t end = PAGE;
    arena->threads_at = reserve(&end, sizeof(struct sg_shared_thread) * arena->threads);
    arena->rings_at = reserve(&end, sizeof(struct sg_rings) * SG_RECORDERS);
    arena->segments_at = reserve(&end, sizeof(struct sg_segment) * arena->segments);
    arena->events_at = reserve(&end, sizeof(struct sg_event) * arena->events);
    arena->chunks_at = reserve(&end, sizeof(struct sg_chunk) * arena->chunks);
    arena->open_at = reserve(&end, sizeof(struct sg_open) * SG_BLOCK_FRAMES * arena->chunks);
    arena->functions_at = reserve(&end, FUNCTIONS_SIZE);
    arena->registry_at = reserve(&end, sizeof(struct sg_registry));
    arena->losses_at = reserve(&end, sizeof(struct sg_losses) * SG_USERS * arena->threads);
    arena->pages_at = reserve(&end, sizeof(struct sg_page) * SG_PAGES);
    arena->cells_at = reserve(&end, 8ull * SG_PAGE_CELLS * SG_PAGES);
    arena->pool_at = reserve(&end, SG_POOL_SIZE);
    if (sg_settings.capture)
        arena->values_at = reserve(&end, SG_VALUES_SIZE);
    arena->data_at = reserve(&end, (uint64_t)arena->segment_size * arena->segments);
    return end;
}

static void find_tables(void)
{
    char *base = (char *)sg_arena;
    sg_shared_threads = (struct sg_shared_thread *)(base + sg_arena->threads_at);
    sg_rings = (struct sg_rings *)(base + sg_arena->rings_at);
    sg_events = (struct sg_event *)(base + sg_arena->events_at);
    sg_chunks = (struct sg_chunk *)(base + sg_arena->chunks_at);
    sg_open_calls = (struct sg_open *)(base + sg_arena->open_at);
    sg_registry = (struct sg_registry *)(base + sg_arena->registry_at);
    sg_losses = (struct sg_losses *)(base + sg_arena->losses_at);
    sg_pages = (struct sg_page *)(base + sg_arena->pages_at);
    sg_cells = (uint64_t *)(base + sg_arena->cells_at);
    sg_pool = base + sg_arena->pool_at;
}

extern char sg_enter[] SG_HIDDEN, sg_enter_end[] SG_HIDDEN, sg_enter_aside[] SG_HIDDEN, sg_enter_aside_end[] SG_HIDDEN;
extern char sg_enter_from_caller[] SG_HIDDEN, sg_enter_for_true_return[] SG_HIDDEN, sg_enter_general[] SG_HIDDEN;
extern char sg_enter_count[] SG_HIDDEN, sg_enter_count_and_record[] SG_HIDDEN, sg_enter_measure[] SG_HIDDEN, sg_enter_recorders[] SG_HIDDEN, sg_enter_frugal[] SG_HIDDEN;
extern char sg_return[] SG_HIDDEN, sg_return_end[] SG_HIDDEN, sg_return_aside[] SG_HIDDEN, sg_return_aside_end[] SG_HIDDEN;

static void tell_zones(void)
{
    sg_settings.enter = (uint64_t)sg_enter;
    sg_settings.enter_end = (uint64_t)sg_enter_end;
    sg_settings.enter_aside = (uint64_t)sg_enter_aside;
    sg_settings.enter_aside_end = (uint64_t)sg_enter_aside_end;
    sg_settings.enter_from_caller = (uint64_t)sg_enter_from_caller;
    sg_settings.enter_for_true_return = (uint64_t)sg_enter_for_true_return;
    sg_settings.enter_general = (uint64_t)sg_enter_general;
    sg_settings.enter_count = (uint64_t)sg_enter_count;
    sg_settings.enter_count_and_record = (uint64_t)sg_enter_count_and_record;
    sg_settings.enter_measure = (uint64_t)sg_enter_measure;
    sg_settings.enter_recorders = (uint64_t)sg_enter_recorders;
    sg_settings.enter_frugal = (uint64_t)sg_enter_frugal;
    sg_settings.leave = (uint64_t)sg_return;
    sg_settings.leave_end = (uint64_t)sg_return_end;
    sg_settings.leave_aside = (uint64_t)sg_return_aside;
    sg_settings.leave_aside_end = (uint64_t)sg_return_aside_end;
    sg_settings.sites = (uint64_t)sg_sites;
    sg_settings.resolver = (uint64_t)sg_resolve_return_address;
    sg_settings.functions = (uint64_t)sg_functions;
    sg_settings.frames = (uint64_t)sg_frames;
    sg_settings.frame_count = SG_FRAMES;
    sg_settings.kept = (uint64_t)sg_kept;
    sg_settings.thread_word = sg_thread_place();
}

/*
 * The table of functions once more, where thunks find it: with another arena it lies there in place of the former one. That
 * comes last of what may fail.
 */
static int map_functions(long fd, uint64_t at)
{
    long flags = sg_functions ? 0x11 /* SHARED, FIXED */ : 1;
    long address = sg_kernel6(KERNEL_mmap, (long)sg_functions, FUNCTIONS_SIZE, 3 /* RW */, flags, fd, (long)at);
    if (address < 0)
        return 0;
    sg_kernel3(KERNEL_madvise, address, FUNCTIONS_SIZE, 16 /* MADV_DONTDUMP */);
    sg_functions = (struct sg_function *)address;
    return 1;
}

/*
 * Makes the arena and the threads' private state from sg_settings; where that fails, nothing has changed. Returns the memfd of the arena, for the controller
 * to open and close again, or -errno. The arena keeps out of core dumps; the threads' state is wiped in forked children,
 * which is how they notice.
 */
__attribute__((visibility("default"))) long sg_start(void)
{
    struct sg_arena plan = {
        .threads = sg_settings.threads,
        .segments = sg_settings.segments,
        .events = EVENTS,
        .chunks = sg_settings.chunks,
        .segment_size = sg_settings.segment_size,
    };
    uint64_t size = lay_out(&plan);
    long fd = sg_kernel2(KERNEL_memfd_create, "shadowgraph", 1 /* MFD_CLOEXEC */);
    if (fd < 0)
        return fd;
    long error = sg_kernel2(KERNEL_ftruncate, fd, size);
    long arena = error < 0 ? error : sg_kernel6(KERNEL_mmap, 0, (long)size, 3 /* RW */, 1 /* SHARED */, fd, 0);
    long private_size = (long)(sizeof(struct sg_thread) * (plan.threads + 1));
    long threads = arena < 0 ? arena
                             : sg_kernel6(KERNEL_mmap, 0, private_size, 3,
                                          0x4022 /* PRIVATE, ANONYMOUS, NORESERVE */, -1, 0);
    if (threads >= 0 && !map_functions(fd, plan.functions_at)) {
        sg_kernel2(KERNEL_munmap, threads, private_size);
        threads = -12; /* ENOMEM */
    }
    if (threads < 0) {
        if (arena > 0)
            sg_kernel2(KERNEL_munmap, arena, size);
        sg_kernel1(KERNEL_close, fd);
        return threads;
    }
    sg_kernel3(KERNEL_madvise, arena, size, 16 /* MADV_DONTDUMP */);
    sg_kernel3(KERNEL_madvise, threads, private_size, 18 /* MADV_WIPEONFORK */);
    sg_arena = (struct sg_arena *)arena;
    sg_threads = (struct sg_thread *)threads;
    sg_threads_start((uint32_t *)(sg_threads + plan.threads));
    *sg_arena = plan;
    sg_arena->size = size;
    sg_arena->tick_base = sg_settings.tick_base ? sg_settings.tick_base : sg_ticks();
    sg_rings_renew();
    find_tables();
    sg_rings[0] = (struct sg_rings){
        .size = size,
        .segments_at = plan.segments_at,
        .values_at = plan.values_at,
        .data_at = plan.data_at,
        .segments = plan.segments,
        .segment_size = plan.segment_size,
    };
    sg_users_start();
    sg_caller_low = sg_settings.caller_low;
    sg_caller_size = sg_settings.caller_size;
    sg_minimal_ticks = sg_settings.minimal_ticks;
    sg_settings.arena = (uint64_t)sg_arena;
    tell_zones();
    sg_arena->magic = SG_ARENA_MAGIC;
    return fd;
}
