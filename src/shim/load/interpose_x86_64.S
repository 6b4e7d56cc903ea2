// dlopen and dlsym as the program sees them. Both end in a jump to the C library's, with the caller's return address
// untouched: that is how it knows whose RUNPATH and which scope to use.
	.text

#define SAVE_ARGUMENTS \
	pushq %rdi; .cfi_adjust_cfa_offset 8; \
	pushq %rsi; .cfi_adjust_cfa_offset 8; \
	pushq %rdx; .cfi_adjust_cfa_offset 8
#define RESTORE_ARGUMENTS \
	popq %rdx; .cfi_adjust_cfa_offset -8; \
	popq %rsi; .cfi_adjust_cfa_offset -8; \
	popq %rdi; .cfi_adjust_cfa_offset -8

	.globl dlopen
	.type dlopen, @function
dlopen:
	.cfi_startproc
	endbr64
	SAVE_ARGUMENTS
	leaq 16(%rsp), %rsi     // where the name lies: it may be replaced
	call tessera_redirect_dlopen
	RESTORE_ARGUMENTS
	jmp *%rax
	.cfi_endproc
	.size dlopen, .-dlopen

	.globl dlsym
	.type dlsym, @function
dlsym:
	.cfi_startproc
	endbr64
	SAVE_ARGUMENTS
	subq $16, %rsp
	.cfi_adjust_cfa_offset 16
	movq $0, (%rsp)
	movq %rsp, %rdx         // a symbol that is not to be looked up
	call tessera_redirect_dlsym
	movq (%rsp), %r11
	addq $16, %rsp
	.cfi_adjust_cfa_offset -16
	RESTORE_ARGUMENTS
	testq %r11, %r11
	jnz 1f
	jmp *%rax
1:	movq %r11, %rax
	ret
	.cfi_endproc
	.size dlsym, .-dlsym

	.section .note.GNU-stack, "", @progbits
