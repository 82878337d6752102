/*
 * Threads (the first argument says how many) that call `one` and `other` in turns, and find out by a count in their page which
 * of these calls somebody has seen: who is on either the one or the other says so by each call. The threads count how
 * often that has changed. A line at stdin ends the program.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define THREADS 64

struct page {
    int64_t seen; /* written by whoever is on the functions */
    int64_t calls, changes, is_other;
} __attribute__((aligned(64)));

static struct page pages[THREADS];
static atomic_int stop;
static atomic_long wrong;

TRACED int64_t one(int64_t number, struct page *page)
{
    (void)page;
    return number + 1;
}

TRACED int64_t other(int64_t number, struct page *page)
{
    (void)page;
    return number + 2;
}

INLINED void note(struct page *page, int is_other)
{
    page->changes += page->is_other != is_other;
    page->is_other = is_other;
    *(volatile int64_t *)&page->calls += 1;
}

static void *run(void *own)
{
    struct page *page = own;
    for (int64_t number = 0; !stop; number++) {
        int64_t before = page->seen;
        wrong += one(number, page) != number + 1;
        note(page, page->seen == before);
        before = page->seen;
        wrong += other(number, page) != number + 2;
        note(page, page->seen != before);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 4);
    pthread_t threads[THREADS];
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, &pages[i]);
    printf("%p\n", (void *)pages);
    getchar();
    stop = 1;
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    EXPECT(wrong == 0);
    return finish();
}
