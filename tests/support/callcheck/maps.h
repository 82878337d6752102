/* Which file the code at an address belongs to. */
#ifndef CALLCHECK_MAPS_H
#define CALLCHECK_MAPS_H

#include <stdint.h>
#include <sys/types.h>

struct mapping {
    uint64_t start, end, offset;
    char path[256];
};

/* The mapping of process `pid` that holds `address`, or NULL. What was read is kept until maps_forget(). */
const struct mapping *maps_find(pid_t pid, uint64_t address);
void maps_forget(void);

/* The part of a path behind the last slash. */
const char *base_name(const char *path);

#endif
