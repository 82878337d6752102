/*
 * Threads (the first argument says how many) that call `work` without end and check every result, while users come and go.
 * Each thread has a page in which it counts its calls as they begin and end, and where handlers may count, and hold each
 * other against the order in which they came: `sequence` says when that was. A line at stdin ends the program.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define USERS 8
#define THREADS 64

struct page {
    int64_t begun, ended;
    int64_t last_entry, last_exit; /* the sequence of the user that has run last */
    int64_t wrong_order;
    int64_t entries[USERS], exits[USERS];
    const int64_t *sequence;
} __attribute__((aligned(512)));

static struct page pages[THREADS];
static int64_t sequence[USERS];
static atomic_int stop;
static atomic_long wrong;

TRACED int64_t leaf(int64_t number, struct page *page)
{
    page->last_exit = INT64_MAX; /* exits of work come after this, its entries before */
    return number + 1;
}

TRACED int64_t work(int64_t number, struct page *page)
{
    page->last_entry = 0;
    return leaf(number, page) * 3;
}

static void *run(void *own)
{
    struct page *page = own;
    for (int64_t number = 0; !stop; number++) {
        *(volatile int64_t *)&page->begun += 1;
        if (work(number, page) != (number + 1) * 3)
            wrong++;
        *(volatile int64_t *)&page->ended += 1;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long count = rounds_of(argc, argv, 8);
    pthread_t threads[THREADS];
    for (long i = 0; i < count; i++) {
        pages[i].sequence = sequence;
        pthread_create(&threads[i], NULL, run, &pages[i]);
    }
    printf("%p %p\n", (void *)pages, (void *)sequence);
    getchar();
    stop = 1;
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    EXPECT(wrong == 0);
    return finish();
}
