/*
 * What users keep from the entry of a call to its exit: an area for each frame, of which each user gets a part (R12). It is
 * private memory, reserved for all frames at once and touched for those in use.
 *
 *     ┌──────┬────────────────────────┬──────────────────────────────────┐
 *     │ used │ where each user's part │ the parts, in the order of entry │
 *     │      │ begins, 64 numbers     │                                  │
 *     └──────┴────────────────────────┴──────────────────────────────────┘
 */
#include "agent.h"

#define AREA_SIZE (SG_STRIDE << AREA_SHIFT)
#define ALIGNMENT 16
#define FIRST ((sizeof(struct area) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

struct area {
    uint64_t epoch;   /* of the registry when the call was entered */
    uint64_t holding; /* users of whose instances the call has one, or is about to take one (instances.c) */
    uint16_t used;
    uint16_t at[SG_USERS];
};

_Static_assert(SG_DATA_LIMIT + 2 * ALIGNMENT + sizeof(struct area) <= AREA_SIZE, "the largest part fits");
_Static_assert(FIRST == AREA_FIRST && SG_FRUGAL_DATA_LIMIT + FIRST <= AREA_SIZE, "those of frugal handlers fit, all together");
#define SAME(member, offset) _Static_assert(offsetof(struct area, member) == (offset), "known to frugal.h")
SAME(epoch, AREA_EPOCH);
SAME(holding, AREA_HOLDING);
SAME(used, AREA_USED);
SAME(at, AREA_AT);
#undef SAME

SG_HIDDEN char *sg_areas;

static struct area *area_of(const struct sg_frame *frame)
{
    return (struct area *)(sg_areas + (uint64_t)(frame - sg_frames) * AREA_SIZE);
}

static int have_areas(void)
{
    return __atomic_load_n(&sg_areas, __ATOMIC_ACQUIRE) != 0;
}

static int make_areas(void)
{
    uint64_t signals = sg_lock();
    if (!sg_areas) {
        long memory = sg_kernel6(KERNEL_mmap, 0, (long)SG_FRAMES * AREA_SIZE, 3 /* RW */, 0x4022 /* PRIVATE, ANONYMOUS, NORESERVE */, -1, 0);
        if (memory > 0)
            __atomic_store_n(&sg_areas, (char *)memory, __ATOMIC_RELEASE);
    }
    sg_unlock(signals);
    return sg_areas != 0;
}

/* A call begins: nobody has a part yet. 0 if there is no memory. */
int sg_area_begin(struct sg_frame *frame, uint64_t epoch)
{
    if (!have_areas() && !make_areas())
        return 0;
    struct area *area = area_of(frame);
    area->used = FIRST;
    area->holding = 0;
    area->epoch = epoch;
    return 1;
}

/* Gives a user its part of the area of a call; 0 if there is no room left. */
void *sg_area_take(struct sg_frame *frame, uint32_t user, uint64_t size)
{
    struct area *area = area_of(frame);
    uint64_t end = area->used + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (end > AREA_SIZE)
        return 0;
    area->at[user] = area->used;
    area->used = (uint16_t)end;
    return (char *)area + area->at[user];
}

/* The part that a user has got. */
void *sg_area_part(struct sg_frame *frame, uint32_t user)
{
    struct area *area = area_of(frame);
    return (char *)area + area->at[user];
}

/* Notes that a call has an instance of a user's, or has none any more: one instruction, for a signal handler may come. */
void sg_area_hold(struct sg_frame *frame, uint32_t user, int on)
{
    struct area *area = area_of(frame);
    if (on)
        __asm__ volatile("orq %1, %0" : "+m"(area->holding) : "r"(1ull << user) : "memory", "cc");
    else
        __asm__ volatile("andq %1, %0" : "+m"(area->holding) : "r"(~(1ull << user)) : "memory", "cc");
}

/* The users of whose instances a call has one, and the epoch of its entry. */
uint64_t sg_area_holding(const struct sg_frame *frame, uint64_t *epoch)
{
    if (!have_areas())
        return 0;
    *epoch = area_of(frame)->epoch;
    return area_of(frame)->holding;
}
