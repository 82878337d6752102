/*
 * Unwind rules that the assembler's own directives cannot say, as DW_CFA_val_expression bytes (DWARF 5, 6.4.2.3 and
 * 2.5). At a site and in the return path CFA is slot + 16, eight more than the program's own frames would have it:
 * libgcc's second phase stops at the frame whose CFA it remembered, and a site must not be taken for that frame.
 */
#ifndef SHADOWGRAPH_UNWIND_H
#define SHADOWGRAPH_UNWIND_H

/* rsp of the caller: CFA - 8.  val_expression r7: lit8, minus */
#define CALLER_RSP .cfi_escape 0x16, 7, 2, 0x38, 0x1c

/*
 * The return address, found from what the slot holds. Just before a site's call has run, and just before the return
 * path's ret, that is the caller's address itself; in between it is the address of a site, known by its bytes:
 *
 *     v := *(CFA - 16)                        lit16 minus deref
 *     if v == 0 goto end                      dup lit0 eq bra(24)
 *     if *(u64 *)v != SITE_SIGNATURE goto end dup deref const8u(...) ne bra(9)
 *     v := *(v + 12 + *(u32 *)(v + 8))        dup plus_uconst(8) deref_size(4) plus plus_uconst(12) deref
 * end: v + 0                                  plus_uconst(0): elfutils wants an operation where a branch leads
 *
 * The frames (.bss) lie above the sites (.text), so the displacement is positive and deref_size need not extend a sign.
 */
#define RETURN_ADDRESS_IN_FRAME_OF_SLOT                                                                                 \
    .cfi_escape 0x16, 16, 35, 0x40, 0x1c, 0x06, 0x12, 0x30, 0x29, 0x28, 24, 0, 0x12, 0x06, 0x0e, 0x48, 0x89, 0x4c, 0x24, \
        0xd8, 0x48, 0x8d, 0x0d, 0x2e, 0x28, 9, 0, 0x12, 0x23, 8, 0x94, 4, 0x22, 0x23, 12, 0x06, 0x23, 0

/* The return address lies in the slot, where the caller pushed it, and CFA is slot + 16. val_expression r16: lit16 minus
   deref */
#define RETURN_ADDRESS_IN_SLOT .cfi_escape 0x16, 16, 3, 0x40, 0x1c, 0x06

#endif
