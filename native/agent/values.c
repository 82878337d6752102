/*
 * Capturing arguments and results, for each recorder what it wants. Between entry and return they wait in a place of their
 * frame's; it is private memory, reserved for all frames and touched for few. Strings are read with care: a bad pointer is captured as one.
 */
#include "agent.h"

#define PLACE_WORDS 64

static uint64_t *places[SG_RECORDERS];

/* The places of one recorder's; 0 if there is no memory. Kept for the next one. */
static uint64_t *places_of(uint32_t ring)
{
    uint64_t *known = __atomic_load_n(&places[ring], __ATOMIC_ACQUIRE), *other = 0;
    if (known)
        return known;
    long size = (long)SG_FRAMES * PLACE_WORDS * 8;
    long memory = sg_kernel6(KERNEL_mmap, 0, size, 3 /* RW */, 0x4022 /* PRIVATE, ANONYMOUS, NORESERVE */, -1, 0);
    if (memory < 0)
        return 0;
    if (__atomic_compare_exchange_n(&places[ring], &other, (uint64_t *)memory, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return (uint64_t *)memory;
    sg_kernel2(KERNEL_munmap, memory, size); /* another thread was faster */
    return other;
}

static uint64_t *place_of(const struct sg_frame *frame, uint64_t *of)
{
    return of + (uint64_t)(frame - sg_frames) * PLACE_WORDS;
}

/* What the recorder of these rings captures of a function's calls; 0: nothing. */
static const struct sg_values *values_of(uint32_t ring, const struct sg_function *function)
{
    const uint32_t *numbers = sg_rings[ring].values_at ? sg_rings_place(ring, sg_rings[ring].values_at) : 0;
    uint32_t number = numbers ? numbers[function->id] : 0;
    return number ? (const struct sg_values *)(numbers + SG_FUNCTIONS) + number - 1 : 0;
}

_Static_assert(SG_VALUES_SIZE == (sizeof(uint32_t) + sizeof(struct sg_values)) * SG_FUNCTIONS, "room for those of all functions");

static int put(uint64_t *place, uint64_t word)
{
    if (place[0] + 2 > PLACE_WORDS)
        return 0;
    place[++place[0]] = word;
    return 1;
}

/* Copies a string, at most `limit` bytes; each page is probed before it is read. Returns the length, flags in `flags`. */
static uint64_t copy_string(char *to, uint64_t from, uint64_t limit, uint64_t *flags)
{
    uint64_t length = 0, ignored;
    *flags = 0;
    while (length < limit) {
        uint64_t at = from + length;
        if ((length == 0 || at % 4096 == 0) && !sg_peek(at & ~7ull, &ignored)) {
            *flags = SG_STRING_BAD;
            return 0;
        }
        char byte = *(volatile char *)at;
        if (!byte)
            return length;
        to[length++] = byte;
    }
    *flags = SG_STRING_CUT;
    return length;
}

static void put_string(uint64_t *place, uint64_t pointer)
{
    uint64_t room = PLACE_WORDS - 2 > place[0] + 2 ? (PLACE_WORDS - 2 - place[0] - 2) * 8 : 0, flags;
    if (!put(place, pointer) || !put(place, 0))
        return;
    uint64_t *head = &place[place[0]], *bytes = head + 1;
    uint64_t length = copy_string((char *)bytes, pointer, room < SG_STRING_LIMIT ? room : SG_STRING_LIMIT, &flags);
    for (uint64_t i = length; i % 8; i++)
        ((char *)bytes)[i] = 0;
    *head = length | flags << 32;
    place[0] += (length + 7) / 8;
}

static void put_item(uint64_t *place, uint8_t kind, uint64_t word)
{
    if (kind == SG_VALUE_STRING)
        put_string(place, word);
    else
        put(place, word);
}

static uint64_t at_entry(struct sg_value item, const uint64_t *slot, const struct sg_entry_registers *r)
{
    const uint64_t integers[] = {r->rdi, r->rsi, r->rdx, r->rcx, r->r8, r->r9};
    if (item.place >= SG_PLACE_STACK)
        return slot[1 + item.place - SG_PLACE_STACK];
    if (item.kind == SG_VALUE_VECTOR)
        return r->xmm[item.place % 8].low;
    return integers[item.place % 6];
}

/* Captures what the recorder of these rings wants of a call; 0 if that is nothing. */
int sg_values_at_entry(const struct sg_frame *frame, uint32_t ring, const uint64_t *slot, const struct sg_entry_registers *registers)
{
    const struct sg_values *values = values_of(ring, frame->function);
    uint64_t *of = values ? places_of(ring) : 0;
    if (!of)
        return 0;
    uint64_t *place = place_of(frame, of);
    place[0] = 0;
    for (uint32_t i = 0; i < values->entry; i++)
        put_item(place, values->items[i].kind, at_entry(values->items[i], slot, registers));
    return 1;
}

void sg_values_at_return(const struct sg_frame *frame, uint32_t ring, const struct sg_exit_registers *registers)
{
    const struct sg_values *values = values_of(ring, frame->function);
    if (!values || !places[ring])
        return;
    uint64_t *place = place_of(frame, places[ring]);
    for (uint32_t i = 0; i < values->at_return; i++) {
        struct sg_value item = values->items[values->entry + i];
        uint64_t general = item.place ? registers->rdx : registers->rax;
        put_item(place, item.kind, item.kind == SG_VALUE_VECTOR ? registers->xmm[item.place & 1].low : general);
    }
}

/* What has been captured of a call: a count, and so many words; 0 if nothing was to be. */
const uint64_t *sg_values_captured(const struct sg_frame *frame, uint32_t ring)
{
    return places[ring] && values_of(ring, frame->function) ? place_of(frame, places[ring]) : 0;
}
