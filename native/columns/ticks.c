/* The time stamp counter, for whoever has to relate ticks to a clock outside of the traced program. */
#include <stdint.h>

__attribute__((visibility("default"))) uint64_t sg_columns_ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}
