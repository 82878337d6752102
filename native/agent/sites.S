/*
 * The return sites: one for each shadow frame, 64 bytes apart like the frames themselves.
 *
 * The entry path drops the slot (rsp = slot + 8) and jumps to the site of the frame it took. The site's call pushes the
 * site's own return address into the very slot that held the caller's, so every ret of the program returns to where the
 * matching call said (design: section 2). Unwinders pass through by the one FDE below (design: section 3).
 */
#include "state.h"
#include "unwind.h"
    .intel_syntax noprefix

    .bss
    .balign 4096
    .globl sg_frames
    .hidden sg_frames
    .type sg_frames, @object
sg_frames:
    .skip SG_STRIDE * SG_FRAMES
    .size sg_frames, . - sg_frames

    .section .text.sites, "ax", @progbits
    .balign 4096
    .globl sg_sites
    .hidden sg_sites
    .type sg_sites, @function
sg_sites:
    .cfi_startproc
    .cfi_def_cfa rsp, 8
    CALLER_RSP
    RETURN_ADDRESS_IN_FRAME_OF_SLOT
    .set k, 0
    .rept SG_FRAMES
    mov rcx, [rsp - 40]                                   /* saved by the entry path below the slot */
    call [rip + sg_frames + SG_STRIDE * k + FRAME_TARGET]
    mov [rsp - 40], rcx                                   /* <- the address in the slot; these 8 bytes are SITE_SIGNATURE */
    lea rcx, [rip + sg_frames + SG_STRIDE * k]            /* its disp32 is 8 bytes behind that address */
    jmp sg_return
    .balign SG_STRIDE, 0xcc
    .set k, k + 1
    .endr
    .cfi_endproc
    .size sg_sites, . - sg_sites
    .section .note.GNU-stack, "", @progbits
