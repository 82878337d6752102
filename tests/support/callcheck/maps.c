#include "maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_MAPPINGS = 4096 };

static struct mapping mappings[MOST_MAPPINGS];
static int count;
static pid_t whose;

static void read_maps(pid_t pid)
{
    char name[64], line[1024];
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    FILE *file = fopen(name, "r");
    count = 0;
    whose = pid;
    while (file != NULL && count < MOST_MAPPINGS && fgets(line, sizeof line, file) != NULL) {
        struct mapping *next = &mappings[count];
        next->path[0] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %255[^\n]", &next->start, &next->end,
                   &next->offset, next->path) >= 3)
            count++;
    }
    if (file != NULL)
        fclose(file);
}

static const struct mapping *find(uint64_t address)
{
    for (int k = 0; k < count; k++)
        if (mappings[k].start <= address && address < mappings[k].end)
            return &mappings[k];
    return NULL;
}

const struct mapping *maps_find(pid_t pid, uint64_t address)
{
    const struct mapping *found = whose == pid ? find(address) : NULL;
    if (found == NULL) {
        read_maps(pid);
        found = find(address);
    }
    return found;
}

void maps_forget(void) { whose = 0; }

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}
