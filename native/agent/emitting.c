/*
 * Events: records that handlers give to Python. Each such user has one ring in the pool, for all threads:
 *
 *     struct sg_event_ring, then size bytes of events, each of whole 8-byte words and not split at the end of the ring:
 *
 *     ┌──────────────┬──────┬──────────────────┬─────────┐
 *     │ size │ ready │ time │ function, thread │ record  │
 *     └──────────────┴──────┴──────────────────┴─────────┘
 *
 * An event is reserved by an exchange of `head`, filled, and made ready by its first word. The controller takes what is
 * ready, clears it, and moves `tail`.
 */
#include "agent.h"

int sg_emit_event(uint32_t slot, uint64_t function, uint32_t thread, const void *record, uint64_t size)
{
    const struct sg_user *user = &sg_registry->users[slot];
    struct sg_event_ring *ring = (struct sg_event_ring *)(sg_pool + user->events);
    char *bytes = (char *)(ring + 1);
    if (!user->events)
        return 0;
    uint64_t need = SG_EVENT_HEAD + (size + 7) / 8 * 8, head, at, skipped;
    do {
        head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
        at = head % ring->size;
        skipped = at + need > ring->size ? ring->size - at : 0;
        if (size > SG_EVENT_LIMIT || head + skipped + need - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) > ring->size) {
            __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
            return 0;
        }
    } while (!__atomic_compare_exchange_n(&ring->head, &head, head + skipped + need, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    if (skipped)
        __atomic_store_n((uint64_t *)(bytes + at), SG_EVENT_READY | SG_EVENT_SKIP | skipped, __ATOMIC_RELEASE);
    uint64_t *words = (uint64_t *)(bytes + (skipped ? 0 : at));
    words[1] = sg_ticks();
    words[2] = (uint64_t)thread << 32 | (uint32_t)function;
    const char *from = record;
    char *to = (char *)(words + 3);
    for (uint64_t i = 0; i < size; i++)
        to[i] = from[i];
    __atomic_store_n(&words[0], SG_EVENT_READY | size, __ATOMIC_RELEASE);
    return 1;
}
