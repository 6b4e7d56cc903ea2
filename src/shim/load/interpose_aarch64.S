// dlopen and dlsym as the program sees them. Both end in a jump to the C library's, with the caller's return address
// untouched: that is how it knows whose RUNPATH and which scope to use.
	.text

	.globl dlopen
	.type dlopen, @function
dlopen:
	.cfi_startproc
	stp x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp x2, x30, [sp, #16]
	.cfi_offset x30, -8
	mov x1, sp              // where the name lies: it may be replaced
	bl tessera_redirect_dlopen
	mov x16, x0
	ldp x2, x30, [sp, #16]
	.cfi_restore x30
	ldp x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	br x16
	.cfi_endproc
	.size dlopen, .-dlopen

	.globl dlsym
	.type dlsym, @function
dlsym:
	.cfi_startproc
	stp x0, x1, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	stp x2, x30, [sp, #16]
	.cfi_offset x30, -24
	str xzr, [sp, #32]
	add x2, sp, #32         // a symbol that is not to be looked up
	bl tessera_redirect_dlsym
	mov x16, x0
	ldr x17, [sp, #32]
	ldp x2, x30, [sp, #16]
	.cfi_restore x30
	ldp x0, x1, [sp], #48
	.cfi_adjust_cfa_offset -48
	cbnz x17, 1f
	br x16
1:	mov x0, x17
	ret
	.cfi_endproc
	.size dlsym, .-dlsym

	.section .note.GNU-stack, "", @progbits
