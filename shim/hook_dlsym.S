/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym of libipcshim-dlsym.so. Everything but a replaced name ends in a jump to the C
 * library's dlsym, not a call: it looks at the return address to know who asks, and a
 * frame of ours would turn everybody's RTLD_NEXT into ours. */

#if defined(__x86_64__)
    .text
    .globl dlsym
    .p2align 4
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    testq %rsi, %rsi
    je .Lpass
    cmpb $'n', (%rsi)
    jne .Lpass
    cmpb $'c', 1(%rsi)
    jne .Lpass
    cmpb $'c', 2(%rsi)
    jne .Lpass
    cmpb $'l', 3(%rsi)
    jne .Lpass
    movq (%rsp), %rdx /* who asks */
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call ips_hook_find
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    je .Lpass
    ret
.Lpass:
    movq ips_hook_real(%rip), %rax
    testq %rax, %rax
    je .Lresolve
    jmp *%rax
.Lresolve:
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call ips_hook_resolve
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    je .Lnone
    jmp *%rax
.Lnone:
    ret
    .cfi_endproc
    .size dlsym, .-dlsym

#elif defined(__aarch64__)
    .text
    .globl dlsym
    .p2align 4
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint #34 /* bti c */
    cbz x1, .Lpass
    ldrb w9, [x1]
    cmp w9, #'n'
    b.ne .Lpass
    ldrb w9, [x1, #1]
    cmp w9, #'c'
    b.ne .Lpass
    ldrb w9, [x1, #2]
    cmp w9, #'c'
    b.ne .Lpass
    ldrb w9, [x1, #3]
    cmp w9, #'l'
    b.ne .Lpass
    mov x2, x30 /* who asks */
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl ips_hook_find
    mov x9, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    .cfi_restore x29
    .cfi_restore x30
    cbz x9, .Lpass
    mov x0, x9
    ret
.Lpass:
    adrp x16, ips_hook_real
    ldr x16, [x16, :lo12:ips_hook_real]
    cbz x16, .Lresolve
    br x16
.Lresolve:
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl ips_hook_resolve
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, .Lnone
    br x16
.Lnone:
    mov x0, xzr
    ret
    .cfi_endproc
    .size dlsym, .-dlsym
#endif

    .section .note.GNU-stack, "", %progbits
