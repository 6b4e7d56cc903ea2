"""The instructions of the trampolines on x86-64; generate.py puts the labels around them."""

REGISTERS = ["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"]
CONFIG_STREAM_OFFSET = 32  # hStream in CUlaunchConfig, checked in gate/gate.h
ENTRY = ["endbr64"]  # the first of each


def load_stream(stream, default):
    """Instructions that leave the stream in %r10, a special handle in place of null."""
    if stream == "null":
        return [f"movl ${default}, %r10d"]
    if stream == "config":
        load = [f"movq {CONFIG_STREAM_OFFSET}(%rdi), %r10"]
    elif int(stream) <= len(REGISTERS):
        load = [f"movq {REGISTERS[int(stream) - 1]}, %r10"]
    else:
        load = [f"movq {8 * (int(stream) - len(REGISTERS))}(%rsp), %r10"]
    return load + ["testq %r10, %r10", f"movl ${default}, %r11d", "cmovzq %r11, %r10"]


def jump(index):
    """To the driver's function."""
    return [f"jmp *tessera_real_table+{8 * index}(%rip)"]


def gated(index, stream, default):
    """To the driver's function if the gate of the thread is open (offsets as in gate/gate.h), else to tessera_gate_enter."""
    return [
        "movq tessera_thread_gate@gottpoff(%rip), %rax",
        "movq %fs:(%rax), %rax",
        "testq %rax, %rax",
        "jz 1f",
        # The budget first: a locked instruction waits for the loads before it, and the epoch lies in another page. Behind
        # it nothing waits for the comparison, which is as predicted.
        "lock decq 16(%rax)",
        "js 1f",
        "movq (%rax), %r10",
        "movl (%r10), %r10d",
        "cmpl 8(%rax), %r10d",
        "jne 2f",
        *jump(index),
        "2:",
        "lock incq 16(%rax)",  # it was not used
        "1:",
        *load_stream(stream, default),
        f"movl ${index}, %eax",
        "jmp tessera_gate_enter",
    ]


def context(index):
    """To the driver's function, after which the thread looks its gate up again."""
    return ["movq tessera_thread_gate@gottpoff(%rip), %rax", "movq $0, %fs:(%rax)", *jump(index)]


def load_stub(index):
    """What the slot of the table points to until the driver is loaded, and while calls are watched."""
    return [f"pushq ${index}", "jmp tessera_find_and_jump"]


# Entered by a jump from a gated function: %eax its index, %r10 the stream, everything else as the caller left it.
GATE_ENTER = """
.hidden tessera_gate_enter
.type tessera_gate_enter, @function
tessera_gate_enter:
\t.cfi_startproc
\tpushq %r9
\t.cfi_adjust_cfa_offset 8
\tpushq %r8
\t.cfi_adjust_cfa_offset 8
\tpushq %rcx
\t.cfi_adjust_cfa_offset 8
\tpushq %rdx
\t.cfi_adjust_cfa_offset 8
\tpushq %rsi
\t.cfi_adjust_cfa_offset 8
\tpushq %rdi
\t.cfi_adjust_cfa_offset 8
\tpushq %rax
\t.cfi_adjust_cfa_offset 8
\tmovq %r10, %rdi
\tmovq %rsp, %rsi
\tcall tessera_gate_slow
\tmovl %eax, %r10d
\tpopq %r11
\t.cfi_adjust_cfa_offset -8
\tpopq %rdi
\t.cfi_adjust_cfa_offset -8
\tpopq %rsi
\t.cfi_adjust_cfa_offset -8
\tpopq %rdx
\t.cfi_adjust_cfa_offset -8
\tpopq %rcx
\t.cfi_adjust_cfa_offset -8
\tpopq %r8
\t.cfi_adjust_cfa_offset -8
\tpopq %r9
\t.cfi_adjust_cfa_offset -8
\ttestl %r10d, %r10d
\tjnz 1f
\tmovl %r11d, %r11d
\tleaq tessera_real_table(%rip), %rax
\tjmp *(%rax,%r11,8)
1:\tmovl %r10d, %eax
\tret
\t.cfi_endproc
.size tessera_gate_enter, .-tessera_gate_enter
"""


def find_and_jump():
    """The body of tessera_find_and_jump: asks tessera_find where the caller wanted to go, and goes there."""
    out = [".cfi_adjust_cfa_offset 8"]
    for r in reversed(REGISTERS):
        out += [f"pushq {r}", ".cfi_adjust_cfa_offset 8"]
    out += ["subq $64, %rsp", ".cfi_adjust_cfa_offset 64"]
    out += [f"movups %xmm{i}, {16 * i}(%rsp)" for i in range(4)]
    out += ["movl 112(%rsp), %edi", "call tessera_find"]  # below 64 + 6 * 8 bytes lies the index
    out += [f"movups {16 * i}(%rsp), %xmm{i}" for i in range(4)]
    out += ["addq $64, %rsp", ".cfi_adjust_cfa_offset -64"]
    for r in REGISTERS:
        out += [f"popq {r}", ".cfi_adjust_cfa_offset -8"]
    out += ["addq $8, %rsp", ".cfi_adjust_cfa_offset -8", "jmp *%rax"]
    return out
