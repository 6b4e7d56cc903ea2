#!/usr/bin/env python3
"""Writes the shim's jump table: generate.py SYMBOLS FUNCTIONS OUT_DIR -> trampolines.S, symbol_index.h, symbol_names.inc,
blocking_calls.inc.

Every symbol of the driver gets a slot in tessera_real_table. A plain symbol jumps through its slot. A gated one first looks
at the gate of the calling thread (offsets as in gate/gate.h), which costs a few instructions while it is open, and falls into
tessera_gate_slow otherwise. Slots start at stubs that load the driver at the first call of anything.
"""
import sys

REGISTERS = ["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"]
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
INNER = ("copy", "between")  # their trampolines are called by hooks of their names
GATED = ("gate", *INNER)
CONFIG_STREAM_OFFSET = 32  # hStream in CUlaunchConfig, checked in gate/gate.h


def read_functions(path, symbols):
    kinds = {}
    for line in open(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        kind, name, stream = words[0], words[1], words[2] if len(words) > 2 else None
        if name not in symbols or name in kinds:
            sys.exit(f"{path}: '{name}' is unknown or named twice")
        for variant in (name, name + "_ptsz", name + "_ptds"):
            if variant in symbols:
                kinds[variant] = (kind, stream)
    return kinds


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


def gated(index, stream, default):
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
        f"jmp *tessera_real_table+{8 * index}(%rip)",
        "2:",
        "lock incq 16(%rax)",  # it was not used
        "1:",
        *load_stream(stream, default),
        f"movl ${index}, %eax",
        "jmp tessera_gate_enter",
    ]


def context(index):
    return [
        "movq tessera_thread_gate@gottpoff(%rip), %rax",
        "movq $0, %fs:(%rax)",
        f"jmp *tessera_real_table+{8 * index}(%rip)",
    ]


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

.type tessera_load_and_jump, @function
tessera_load_and_jump:
\t.cfi_startproc
\t.cfi_adjust_cfa_offset 8
"""


def load_and_jump():
    """The first call of anything: loads the driver (which fills the table), then goes where the caller wanted."""
    out = []
    for r in reversed(REGISTERS):
        out += [f"pushq {r}", ".cfi_adjust_cfa_offset 8"]
    out += ["subq $64, %rsp", ".cfi_adjust_cfa_offset 64"]
    out += [f"movups %xmm{i}, {16 * i}(%rsp)" for i in range(4)]
    out += ["call tessera_load_real"]
    out += [f"movups {16 * i}(%rsp), %xmm{i}" for i in range(4)]
    out += ["addq $64, %rsp", ".cfi_adjust_cfa_offset -64"]
    for r in REGISTERS:
        out += [f"popq {r}", ".cfi_adjust_cfa_offset -8"]
    out += ["popq %r11", ".cfi_adjust_cfa_offset -8", "leaq tessera_real_table(%rip), %rax", "jmp *(%rax,%r11,8)"]
    out += [".cfi_endproc", ".size tessera_load_and_jump, .-tessera_load_and_jump"]
    return out


def main():
    symbols_path, functions_path, out = sys.argv[1:4]
    symbols = [line.strip() for line in open(symbols_path) if line.strip()]
    if symbols != sorted(symbols):
        sys.exit(f"{symbols_path}: must be sorted by bytes, names are looked up by bisection")
    kinds = read_functions(functions_path, set(symbols)) if functions_path != "-" else {}
    asm = [".text", GATE_ENTER.strip("\n")] if any(k == "gate" for k, _ in kinds.values()) else [
        ".text", GATE_ENTER[GATE_ENTER.index(".type tessera_load_and_jump"):].strip("\n")]
    asm += load_and_jump()
    for index, name in enumerate(symbols):
        kind, stream = kinds.get(name, ("jump", None))
        if kind not in ("hook", "blocks"):
            label = "tessera_gated_" + name if kind in INNER else name
            asm += [f".globl {label}", f".type {label}, @function", f".p2align {6 if kind in GATED else 4}", f"{label}:", ".cfi_startproc", "endbr64"]
            default = PER_THREAD_STREAM if name.endswith(("_ptsz", "_ptds")) else LEGACY_STREAM
            if kind in GATED:
                asm += gated(index, stream, default)
            elif kind == "context":
                asm += context(index)
            else:
                asm += [f"jmp *tessera_real_table+{8 * index}(%rip)"]
            asm += [".cfi_endproc", f".size {label}, .-{label}"] + [f".hidden {label}"] * (kind in INNER)
        asm += [f".Lload{index}:", f"pushq ${index}", "jmp tessera_load_and_jump"]
    asm += [".section .data.rel.local, \"aw\"", ".globl tessera_real_table", ".hidden tessera_real_table",
            ".p2align 6", "tessera_real_table:"]
    asm += [f".quad .Lload{i}" for i in range(len(symbols))]
    asm += [".section .data.rel.ro, \"aw\"", ".globl tessera_own_table", ".hidden tessera_own_table",
            ".p2align 3", "tessera_own_table:"]
    # Addresses that programs must get in place of the driver's: only of functions that are more than a jump.
    asm += [f".quad {name if name in kinds else 0}" for name in symbols]
    asm += ['.section .note.GNU-stack, "", @progbits']
    with open(f"{out}/trampolines.S", "w") as f:
        f.write("\n".join(line if line.endswith(":") or line.startswith((".", "\t")) else "\t" + line for line in asm) + "\n")
    with open(f"{out}/symbol_index.h", "w") as f:
        f.write("#pragma once\nnamespace tessera::shim {\nenum Symbol : unsigned {\n")
        f.writelines(f"  k_{name},\n" for name in symbols)
        f.write("  kSymbols\n};\n}  // namespace tessera::shim\n")
    with open(f"{out}/blocking_calls.inc", "w") as f:
        for name, (kind, stream) in kinds.items():
            if kind == "copy" and stream == "null":
                default = "PER_THREAD" if name.endswith("_ptds") else "LEGACY"
                f.write(f"TESSERA_COPY_NOW({name}, CU_STREAM_{default})\n")
            elif kind in ("blocks", "copy"):
                f.write(f"TESSERA_{kind.upper()}({name})\n")
    with open(f"{out}/symbol_names.inc", "w") as f:
        f.writelines(f'"{name}",\n' for name in symbols)


main()
