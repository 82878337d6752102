#include "decode.h"

#include <string.h>

/* Legacy prefixes (Intel SDM volume 2, 2.1.1); rep and bnd before ret and call are among them. */
static int is_prefix(unsigned char byte)
{
    switch (byte) {
    case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67:
    case 0xf0: case 0xf2: case 0xf3:
        return 1;
    default:
        return 0;
    }
}

/* call rel32 to the next instruction reads its own address; the hardware does not push it on the shadow stack. */
static enum kind near_call(const unsigned char *displacement, size_t count)
{
    return count >= 4 && memcmp(displacement, "\0\0\0\0", 4) == 0 ? KIND_OTHER : KIND_CALL;
}

static enum kind group_5(unsigned char modrm)
{
    int operation = modrm >> 3 & 7;
    return operation == 2 || operation == 3 ? KIND_CALL : KIND_OTHER;
}

enum kind instruction_kind(const unsigned char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count && is_prefix(bytes[at]))
        at++;
    if (at < count && (bytes[at] & 0xf0) == 0x40) /* REX */
        at++;
    if (at >= count)
        return KIND_OTHER;
    switch (bytes[at]) {
    case 0xe8:
        return near_call(bytes + at + 1, count - at - 1);
    case 0x9c:
        return KIND_PUSH_FLAGS;
    case 0xc2: case 0xc3: case 0xca: case 0xcb:
        return KIND_RETURN;
    case 0xff:
        return at + 1 < count ? group_5(bytes[at + 1]) : KIND_OTHER;
    case 0x0f:
        return at + 1 < count && bytes[at + 1] == 0x05 ? KIND_SYSCALL : KIND_OTHER;
    default:
        return KIND_OTHER;
    }
}
