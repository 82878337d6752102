/*
 * Function starts that relocation has to get right, one shape each, written by hand. All take rdi (a small count where the
 * function loops), rsi, and rdx, an address of data; and read flags where the shape is about them.
 */
        .text
        .macro  function name
        .p2align 4
        .globl  \name
        .type   \name, @function
\name:  .cfi_startproc
        .endm
        .macro  end name
        .cfi_endproc
        .size   \name, . - \name
        .endm
        /* No padding before or behind. */
        .macro  packed name
        .globl  \name
        .type   \name, @function
\name:  .cfi_startproc
        .endm

function endbr_first
        endbr64
        lea     (%rdi,%rsi), %rax
        ret
end endbr_first

function endbr_loop
        endbr64
        add     %rdi, %rax
        dec     %rdi
        jne     endbr_loop
        ret
end endbr_loop

function endbr_loop_behind
        endbr64
1:      add     %rdi, %rax
        dec     %rdi
        jne     1b
        ret
end endbr_loop_behind

function push_immediate8
        push    $-5
        .cfi_adjust_cfa_offset 8
        pop     %rax
        .cfi_adjust_cfa_offset -8
        sbb     %rdi, %rax
        ret
end push_immediate8

function push_immediate32
        push    $0x12345678
        .cfi_adjust_cfa_offset 8
        pop     %rax
        .cfi_adjust_cfa_offset -8
        ret
end push_immediate32

function rip_lea
        lea     constant(%rip), %rax
        ret
end rip_lea

function rip_load
        mov     constant(%rip), %rax
        adc     %rdi, %rax
        ret
end rip_load

function rip_compare_immediate8
        cmpb    $0x7f, constant(%rip)
        setg    %al
        ret
end rip_compare_immediate8

function rip_compare_immediate32
        cmpl    $0x12345678, constant(%rip)
        setae   %al
        ret
end rip_compare_immediate32

function rip_store
        movl    $77, variable(%rip)
        mov     variable(%rip), %eax
        ret
end rip_store

function rip_vector
        movups  constant(%rip), %xmm0
        ret
end rip_vector

function rip_second
        push    %rbx
        .cfi_adjust_cfa_offset 8
        mov     constant(%rip), %rbx
        lea     (%rbx,%rdi), %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end rip_second

function call_first
        call    callee
        add     $1, %rax
        ret
end call_first

function call_after_push
        push    %rbx
        .cfi_adjust_cfa_offset 8
        call    callee
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end call_after_push

function call_after_frame
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    callee
        lea     8(%rsp), %rsp
        .cfi_adjust_cfa_offset -8
        ret
end call_after_frame

function call_third
        mov     %rsi, %rdi
        call    callee
        ret
end call_third

function call_memory_first
        call    *pointer(%rip)
        ret
end call_memory_first

function call_memory_third
        mov     %rsi, %rdi
        call    *pointer(%rip)
        ret
end call_memory_third

function call_register_third
        mov     %rsi, %rdi
        call    *%rcx
        ret
end call_register_third

function call_memory
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    *pointer(%rip)
        add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        ret
end call_memory

function call_register
        lea     (%rdx), %rax
        call    *%rcx
        ret
end call_register

function call_register_early
        call    *%rcx
        add     $1, %rax
        ret
end call_register_early

function call_next
        call    1f
1:      pop     %rax
        ret
end call_next

function call_flags
        call    takes_carry
        ret
end call_flags

function jump_first
        jmp     callee
end jump_first

function jump_short_first
        jmp     1f
        ud2
1:      lea     3(%rdi), %rax
        ret
end jump_short_first

function jump_memory_first
        jmp     *pointer(%rip)
end jump_memory_first

function conditional_first
        jc      1f
        mov     $1, %eax
        ret
1:      mov     $2, %eax
        ret
end conditional_first

function conditional_far_first
        jbe     callee
        mov     $3, %eax
        ret
end conditional_far_first

function conditional_into_window
        test    %edi, %edi
        je      1f
1:      adc     $0, %esi
        mov     %esi, %eax
        ret
end conditional_into_window

function conditional_over_one
        test    %dil, %dil
        jne     1f
        inc     %esi
1:      mov     %esi, %eax
        ret
end conditional_over_one

function loop_head_first
        add     %rdi, %rax
        dec     %rdi
        jne     loop_head_first
        ret
end loop_head_first

function loop_head_second
        push    %rbx
        .cfi_adjust_cfa_offset 8
1:      add     %rdi, %rbx
        dec     %rdi
        jne     1b
        mov     %rbx, %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end loop_head_second

function loop_two_heads
        mov     %edi, %ecx
1:      inc     %rax
        dec     %ecx
        jne     1b
        dec     %rdi
        jne     loop_two_heads
        ret
end loop_two_heads

function loop_in_red_zone
        add     %rdi, %rax
        mov     %rax, -48(%rsp)
        mov     %rdi, -64(%rsp)
        xor     %eax, %eax
        mov     -48(%rsp), %rax
        dec     %rdi
        jne     loop_in_red_zone
        ret
end loop_in_red_zone

function loop_around_call
        test    %rdi, %rdi
        je      1f
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    callee
        add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        dec     %rdi
        jmp     loop_around_call
1:      ret
end loop_around_call

function loop_instruction
        mov     %edi, %ecx
1:      inc     %rax
        loop    1b
        ret
end loop_instruction

function loop_instruction_first
        loop    1f
        mov     $1, %eax
        ret
1:      mov     $2, %eax
        ret
end loop_instruction_first

function loop_equal_first
        loope   1f
        mov     $1, %eax
        ret
1:      mov     $2, %eax
        ret
end loop_equal_first

function count_zero_first
        jrcxz   1f
        mov     $1, %eax
        ret
1:      mov     $2, %eax
        ret
end count_zero_first

function count_zero_32_first
        jecxz   1f
        mov     $1, %eax
        ret
1:      mov     $2, %eax
        ret
end count_zero_32_first

function rep_return
        mov     %rdi, %rax
        rep ret
end rep_return

function nops_5
        nop
        nop
        nop
        nop
        nop
        lea     7(%rdi), %rax
        ret
end nops_5

function nop_5
        nopl    0(%rax,%rax,1)
        lea     7(%rdi), %rax
        ret
end nop_5

function direction_flag
        std
        cld
        sbb     %eax, %eax
        ret
end direction_flag

function parameters_on_stack
        mov     8(%rsp), %rax
        add     16(%rsp), %rax
        ret
end parameters_on_stack

function static_chain
        lea     (%r10,%r11), %rax
        ret
end static_chain

function segment_first
        mov     %fs:0, %rax
        xor     %eax, %eax
        ret
end segment_first

function system_call_first
        mov     $39, %al
        movzbl  %al, %eax
        syscall
        xor     %eax, %eax
        xor     %ecx, %ecx
        xor     %r11d, %r11d
        ret
end system_call_first

function system_call_early
        xor     %eax, %eax
        syscall
        xor     %eax, %eax
        xor     %ecx, %ecx
        xor     %r11d, %r11d
        ret
end system_call_early

function traps
        ud2
end traps

function breakpoint_first
        int3
        nop
        nop
        nop
        nop
        ret
end breakpoint_first

function returns_only
        ret
end returns_only

function returns_zero
        xor     %eax, %eax
        ret
end returns_zero

function returns_argument
        mov     %rdi, %rax
        ret
end returns_argument

function jumps_shortly
        jmp     returns_argument
end jumps_shortly

function pops_return_address
        pop     %rcx
        lea     1(%rdi), %rax
        push    %rcx
        xor     %ecx, %ecx
        ret
end pops_return_address

function reads_return_address
        mov     (%rsp), %rax
        xor     %eax, %eax
        ret
end reads_return_address

/* Somebody enters behind the first instruction, as memmove enters memcpy. */
function entered_behind_3
        mov     %rdi, %rax
        lea     (%rax,%rsi), %rax
        add     %rdx, %rax
        ret
end entered_behind_3
function enters_behind_3
        mov     %rsi, %rax
        jmp     entered_behind_3 + 3
end enters_behind_3

function entered_behind_1
        nop
        lea     (%rdi,%rsi), %rax
        sub     %rdx, %rax
        ret
end entered_behind_1
function enters_behind_1
        lea     17(%rsi), %rdi
        sub     $16, %rdi
        .byte   0xe9
        .long   entered_behind_1 + 1 - . - 4
end enters_behind_1
function enters_behind_1_perhaps
        lea     1(%rsi), %rdi
        lea     (%rdi), %rdi
        .byte   0x0f, 0x82
        .long   entered_behind_1 + 1 - . - 4
        lea     9(%rdi), %rax
        ret
end enters_behind_1_perhaps

/* The same by a jump that cannot be led elsewhere. */
function entered_shortly_behind_1
        nop
        lea     (%rdi,%rsi), %rax
        sub     %rdx, %rax
        ret
end entered_shortly_behind_1
function enters_shortly_behind_1
        mov     %rsi, %rdi
        .byte   0xeb
        .byte   entered_shortly_behind_1 + 1 - . - 1
end enters_shortly_behind_1

/* The head of a loop with a call in it lies behind one byte; the jump back is a long one. */
function loop_with_call_behind_1
        push    %rbx
        .cfi_adjust_cfa_offset 8
1:      lea     (%rdi,%rax), %rbx
        call    callee
        mov     %rbx, %rdi
        sub     $7, %rdi
        .byte   0x0f, 0x8f
        .long   1b - . - 4
        mov     %rbx, %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end loop_with_call_behind_1

/* The jump into it is itself displaced: its copy would still lead to the original. */
function entered_from_window
        nop
        lea     (%rdi,%rsi), %rax
        sub     %rdx, %rax
        ret
end entered_from_window
function enters_from_window
        .byte   0xe9
        .long   entered_from_window + 1 - . - 4
end enters_from_window

/* The head of a loop with a call in it lies behind four bytes. */
function loop_with_call_behind_4
        push    %rbx
        .cfi_adjust_cfa_offset 8
        mov     %rdi, %rbx
1:      mov     %rbx, %rdi
        call    callee
        dec     %ebx
        jg      1b
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end loop_with_call_behind_4

/* A loop that begins among its first bytes, and is also entered from outside. */
function loop_entered_late
        nop
1:      add     %rdi, %rax
        nopl    0(%rax)
        dec     %rdi
        jg      1b
        ret
end loop_entered_late
function enters_loop_late
        lea     1(%rdi), %rdi
        nopl    0(%rax)
        jmp     loop_entered_late + 8
end enters_loop_late

function by_table
        and     $1, %edi
        lea     1f(%rip), %rcx
        movslq  (%rcx,%rdi,4), %rax
        add     %rcx, %rax
        jmp     *%rax
        .section .rodata
        .p2align 2
1:      .long   2f - 1b, 3f - 1b
        .text
2:      mov     $20, %eax
        ret
3:      mov     $30, %eax
        ret
end by_table

/* A table leads to the second instruction. */
function table_to_window
        xor     %ecx, %ecx
1:      inc     %ecx
        cmp     $2, %ecx
        je      2f
        lea     3f(%rip), %rsi
        movslq  (%rsi), %rax
        add     %rsi, %rax
        jmp     *%rax
        .section .rodata
        .p2align 2
3:      .long   1b - 3b, 2f - 3b
        .text
2:      mov     %ecx, %eax
        xor     %esi, %esi
        ret
end table_to_window

/* Functions without anything between them. */
        .p2align 4
        .skip   64, 0x90
packed packed_before
        push    %rbp
        .cfi_adjust_cfa_offset 8
        mov     %rsp, %rbp
        lea     3(%rdi), %rax
        lea     4(%rax,%rsi), %rax
        pop     %rbp
        .cfi_adjust_cfa_offset -8
        ret
end packed_before
packed packed_4
        lea     (%rdi), %eax
        nop
        ret
end packed_4
packed packed_3
        xor     %eax, %eax
        ret
end packed_3
packed packed_2
        jmp     packed_3
end packed_2
packed packed_1
        ret
end packed_1
packed packed_behind
        push    %rbx
        .cfi_adjust_cfa_offset 8
        mov     %rdi, %rbx
        lea     5(%rbx), %rax
        add     %rsi, %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end packed_behind

/* Two entries into one body. */
function outer_entry
        add     $100, %rdi
        nop
        nop
        .globl  inner_entry
        .type   inner_entry, @function
inner_entry:
        lea     1(%rdi), %rax
        ret
end outer_entry
        .size   inner_entry, . - inner_entry

/* The second entry is not one: a register has been pushed before it. */
function outer_frame
        push    %rbx
        .cfi_adjust_cfa_offset 8
        mov     %rdi, %rbx
        lea     (%rbx,%rsi), %rax
        .globl  inner_frame
        .type   inner_frame, @function
inner_frame:
        lea     1(%rax), %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
end outer_frame
        .size   inner_frame, . - inner_frame

function entry_in_window
        lea     1(%rdi), %rax
        .globl  second_in_window
        .type   second_in_window, @function
second_in_window:
        lea     1(%rax), %rax
        ret
end entry_in_window
        .size   second_in_window, . - second_in_window

function callee
        lea     (%rdi,%rdi,2), %rax
        ret
end callee

function takes_carry
        sbb     %rax, %rax
        ret
end takes_carry

        .section .rodata
        .p2align 4
constant:
        .quad   0x123456789abcdef0, 0x0fedcba987654321
        .data
        .p2align 3
variable:
        .quad   0
pointer:
        .quad   callee
        .section .note.GNU-stack, "", @progbits
