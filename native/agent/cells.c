/*
 * Cells: what counters and histograms add to (users.h). Each thread has pages of its own, so adding takes no lock and no locked
 * instruction; a signal handler comes before or behind the one instruction that adds.
 */
#include "agent.h"

#define DIRECTORY_SIZE (sizeof(uint64_t *) * SG_PAGE_NUMBERS)
#define THREADS_LIMIT 65536

/* Directories by the index of a thread; kept for the next thread with that index. */
static uint64_t **directories[THREADS_LIMIT];

static uint64_t **directory_of(struct sg_thread *thread)
{
    if (thread->index >= THREADS_LIMIT)
        return 0;
    uint64_t **known = directories[thread->index];
    if (known) {
        sg_kernel3(KERNEL_madvise, known, DIRECTORY_SIZE, 4 /* MADV_DONTNEED: all zero again */);
        return known;
    }
    long memory = sg_kernel6(KERNEL_mmap, 0, DIRECTORY_SIZE, 3 /* RW */, 0x4022 /* PRIVATE, ANONYMOUS, NORESERVE */, -1, 0);
    return memory < 0 ? 0 : (directories[thread->index] = (uint64_t **)memory);
}

static int claim(uint32_t index, uint32_t from)
{
    return __atomic_load_n(&sg_pages[index].state, __ATOMIC_RELAXED) == from && sg_swap(&sg_pages[index].state, from, SG_PAGE_CLAIMED);
}

/* A page for this number: one that a dead thread has left, or a free one. 0 if there is none. */
static struct sg_page *find_page(uint32_t number)
{
    uint32_t end = __atomic_load_n(&sg_arena->page_end, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < end; i++)
        if (__atomic_load_n(&sg_pages[i].number, __ATOMIC_RELAXED) == number && claim(i, SG_PAGE_ORPHAN))
            return &sg_pages[i];
    for (uint32_t i = 0; i < SG_PAGES; i++) {
        if (!claim(i, SG_PAGE_FREE))
            continue;
        uint32_t known = end;
        while (known <= i && !__atomic_compare_exchange_n(&sg_arena->page_end, &known, i + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            ;
        return &sg_pages[i];
    }
    return 0;
}

/* The same, where the thread may not have the page yet. */
uint64_t *sg_cell_made(struct sg_thread *thread, uint64_t number)
{
    uint64_t at = number / SG_PAGE_CELLS;
    if (at >= SG_PAGE_NUMBERS)
        return 0;
    uint64_t signals = sg_signals_block();
    if (!thread->pages)
        thread->pages = directory_of(thread);
    uint64_t *cells = thread->pages ? thread->pages[at] : 0;
    struct sg_page *page = thread->pages && !cells ? find_page((uint32_t)at) : 0;
    if (page) {
        __atomic_store_n(&page->number, (uint32_t)at, __ATOMIC_RELAXED);
        __atomic_store_n(&page->thread, thread->index, __ATOMIC_RELAXED);
        __atomic_store_n(&page->pid, thread->shared->pid, __ATOMIC_RELAXED);
        cells = thread->pages[at] = sg_cells + (uint64_t)(page - sg_pages) * SG_PAGE_CELLS;
        __atomic_store_n(&page->state, SG_PAGE_USED, __ATOMIC_RELEASE);
    }
    sg_signals_restore(signals);
    return cells ? cells + number % SG_PAGE_CELLS : 0;
}

/* Another thread may be about to make it its own: then it is not this one's before or behind. */
static int is_of(const struct sg_page *page, uint32_t thread, uint32_t pid)
{
    return __atomic_load_n(&page->state, __ATOMIC_ACQUIRE) == SG_PAGE_USED && __atomic_load_n(&page->thread, __ATOMIC_RELAXED) == thread &&
           __atomic_load_n(&page->pid, __ATOMIC_RELAXED) == pid;
}

/* A thread is gone: what it has counted stays, and the next one that needs the same cells goes on from there. */
void sg_cells_leave(uint32_t thread)
{
    uint32_t end = __atomic_load_n(&sg_arena->page_end, __ATOMIC_ACQUIRE), pid = sg_shared_threads[thread].pid;
    for (uint32_t i = 0; i < end; i++)
        if (is_of(&sg_pages[i], thread, pid))
            __atomic_store_n(&sg_pages[i].state, SG_PAGE_ORPHAN, __ATOMIC_RELEASE);
}
