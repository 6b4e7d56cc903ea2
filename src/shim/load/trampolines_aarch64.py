"""The instructions of the trampolines on 64-bit ARM; generate.py puts the labels around them. They may use x9 to x17, which
no caller keeps, and leave the arguments alone."""

REGISTERS = [f"x{i}" for i in range(8)]
CONFIG_STREAM_OFFSET = 32  # hStream in CUlaunchConfig, checked in gate/gate.h
ENTRY = []


def load_stream(stream, default):
    """Instructions that leave the stream in x9, a special handle in place of null."""
    if stream == "null":
        return [f"mov x9, #{default}"]
    if stream == "config":
        load = [f"ldr x9, [x0, #{CONFIG_STREAM_OFFSET}]"]
    elif int(stream) <= len(REGISTERS):
        load = [f"mov x9, {REGISTERS[int(stream) - 1]}"]
    else:
        load = [f"ldr x9, [sp, #{8 * (int(stream) - len(REGISTERS) - 1)}]"]
    return load + [f"mov x10, #{default}", "cmp x9, #0", "csel x9, x10, x9, eq"]


def thread_gate():
    """Leaves the address of tessera_thread_gate in x16."""
    return [
        "adrp x16, :gottprel:tessera_thread_gate",
        "ldr x16, [x16, #:gottprel_lo12:tessera_thread_gate]",
        "mrs x17, tpidr_el0",
        "add x16, x16, x17",
    ]


def jump(index):
    """To the driver's function. The load acquires: another thread may have filled the table just now, and what it loaded
    must be there."""
    slot = f"tessera_real_table+{8 * index}"
    return [f"adrp x16, {slot}", f"add x16, x16, #:lo12:{slot}", "ldar x16, [x16]", "br x16"]


def gated(index, stream, default):
    """To the driver's function if the gate of the thread is open (offsets as in gate/gate.h), else to tessera_gate_enter."""
    return [
        *thread_gate(),
        "ldr x9, [x16]",
        "cbz x9, 1f",
        # As x86-64's locked instructions are ordered: the store that takes from the budget releases, and the loads of the
        # epoch and of the budget acquire. By pairs of exclusive accesses, which every such processor has.
        "add x10, x9, #16",
        "3:",
        "ldaxr x11, [x10]",
        "sub x11, x11, #1",
        "stlxr w12, x11, [x10]",
        "cbnz w12, 3b",
        "tbnz x11, #63, 1f",
        "ldr x11, [x9]",
        "ldar w11, [x11]",
        "ldr w12, [x9, #8]",
        "cmp w11, w12",
        "b.ne 2f",
        *jump(index),
        "2:",  # the budget was not used
        "ldaxr x11, [x10]",
        "add x11, x11, #1",
        "stlxr w12, x11, [x10]",
        "cbnz w12, 2b",
        "1:",
        *load_stream(stream, default),
        f"mov x10, #{index}",
        "b tessera_gate_enter",
    ]


def context(index):
    """To the driver's function, after which the thread looks its gate up again."""
    return [*thread_gate(), "str xzr, [x16]", *jump(index)]


def load_stub(index):
    """What the slot of the table points to until the driver is loaded, and while calls are watched."""
    return [f"mov x17, #{index}", "b tessera_find_and_jump"]


def jump_by(register):
    """To the function whose index is in the register."""
    return ["adrp x16, tessera_real_table", "add x16, x16, #:lo12:tessera_real_table", f"add x16, x16, {register}, lsl #3",
            "ldar x16, [x16]", "br x16"]


# Entered by a jump from a gated function: x10 its index, x9 the stream, everything else as the caller left it. Lays the
# call out as GatedCall of use/operands.h has it.
GATE_ENTER = """
.hidden tessera_gate_enter
.type tessera_gate_enter, @function
tessera_gate_enter:
\t.cfi_startproc
\tstp x10, x0, [sp, #-80]!
\t.cfi_adjust_cfa_offset 80
\tstp x1, x2, [sp, #16]
\tstp x3, x4, [sp, #32]
\tstp x5, x6, [sp, #48]
\tstp x7, x30, [sp, #64]
\t.cfi_offset x30, -8
\tmov x0, x9
\tmov x1, sp
\tbl tessera_gate_slow
\tmov w9, w0
\tldp x1, x2, [sp, #16]
\tldp x3, x4, [sp, #32]
\tldp x5, x6, [sp, #48]
\tldp x7, x30, [sp, #64]
\t.cfi_restore x30
\tldp x10, x0, [sp], #80
\t.cfi_adjust_cfa_offset -80
\tcbnz w9, 1f
\t""" + "\n\t".join(jump_by("x10")) + """
1:\tmov w0, w9
\tret
\t.cfi_endproc
.size tessera_gate_enter, .-tessera_gate_enter
"""


def find_and_jump():
    """The body of tessera_find_and_jump: asks tessera_find where the caller wanted to go, and goes there."""
    pairs = [("x0", "x1"), ("x2", "x3"), ("x4", "x5"), ("x6", "x7"), ("x17", "x30"), ("d0", "d1"), ("d2", "d3")]
    bytes = 16 * len(pairs)
    out = [f"sub sp, sp, #{bytes}", f".cfi_adjust_cfa_offset {bytes}"]
    out += [f"stp {a}, {b}, [sp, #{16 * i}]" for i, (a, b) in enumerate(pairs)]
    out += [f".cfi_offset x30, {16 * 4 + 8 - bytes}", "mov x0, x17", "bl tessera_find",
            "mov x16, x0"]
    out += [f"ldp {a}, {b}, [sp, #{16 * i}]" for i, (a, b) in enumerate(pairs)]
    out += [".cfi_restore x30", f"add sp, sp, #{bytes}", f".cfi_adjust_cfa_offset -{bytes}"]
    return out + ["br x16"]
