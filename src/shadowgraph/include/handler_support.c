/*
 * What compilers call in code that calls nothing (copying a struct, clearing an array), and the like: linked into every
 * handler, so that it needs nothing of the program that it runs in.
 */
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* or strlen's loop would become a call of strlen */
#endif

typedef __SIZE_TYPE__ size;

#define OWN __attribute__((visibility("hidden")))

OWN void *memcpy(void *to, const void *from, size count);
OWN void *memmove(void *to, const void *from, size count);
OWN void *memset(void *to, int byte, size count);
OWN int memcmp(const void *left, const void *right, size count);
OWN size strnlen(const char *text, size most);
OWN size strlen(const char *text);
OWN int strncmp(const char *left, const char *right, size most);
OWN int strcmp(const char *left, const char *right);

void *memcpy(void *to, const void *from, size count)
{
    void *place = to;
    __asm__ volatile("rep movsb" : "+D"(place), "+S"(from), "+c"(count) : : "memory");
    return to;
}

void *memmove(void *to, const void *from, size count)
{
    char *target = to;
    const char *source = from;
    if ((size)(target - source) >= count)
        return memcpy(to, from, count);
    while (count--)
        target[count] = source[count];
    return to;
}

void *memset(void *to, int byte, size count)
{
    void *place = to;
    __asm__ volatile("rep stosb" : "+D"(place), "+c"(count) : "a"(byte) : "memory");
    return to;
}

int memcmp(const void *left, const void *right, size count)
{
    const unsigned char *a = left, *b = right;
    for (size i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] - b[i];
    return 0;
}

size strnlen(const char *text, size most)
{
    size length = 0;
    while (length < most && text[length])
        length++;
    return length;
}

size strlen(const char *text)
{
    return strnlen(text, (size)-1);
}

int strncmp(const char *left, const char *right, size most)
{
    const unsigned char *a = (const unsigned char *)left, *b = (const unsigned char *)right;
    for (size i = 0; i < most; i++)
        if (a[i] != b[i] || !a[i])
            return a[i] - b[i];
    return 0;
}

int strcmp(const char *left, const char *right)
{
    return strncmp(left, right, (size)-1);
}
