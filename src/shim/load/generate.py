#!/usr/bin/env python3
"""Writes the shim's jump table: generate.py PROCESSOR SYMBOLS FUNCTIONS OUT_DIR -> trampolines.S, symbol_index.h,
symbol_names.inc, blocking_calls.inc.

Every symbol of the driver gets a slot in tessera_real_table. A plain symbol jumps through its slot. A gated one first looks
at the gate of the calling thread (offsets as in gate/gate.h), which costs a few instructions while it is open, and falls into
tessera_gate_slow otherwise. Slots start at stubs that load the driver at the first call of anything, and lead there again
while calls are watched (call_watch.h). The instructions are those of trampolines_PROCESSOR.py.
"""
import importlib
import sys

sys.dont_write_bytecode = True  # the sources stay clean

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
INNER = ("copy", "between")  # their trampolines are called by hooks of their names
GATED = ("gate", *INNER)


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


def function(name, body, alignment=None):
    align = [f".p2align {alignment}"] if alignment else []
    return [f".type {name}, @function", *align, f"{name}:", ".cfi_startproc", *body, ".cfi_endproc", f".size {name}, .-{name}"]


def main():
    processor, symbols_path, functions_path, out = sys.argv[1:5]
    code = importlib.import_module(f"trampolines_{processor}")
    symbols = [line.strip() for line in open(symbols_path) if line.strip()]
    if symbols != sorted(symbols):
        sys.exit(f"{symbols_path}: must be sorted by bytes, names are looked up by bisection")
    kinds = read_functions(functions_path, set(symbols)) if functions_path != "-" else {}
    asm = [".text"]
    if any(kind == "gate" for kind, _ in kinds.values()):
        asm += code.GATE_ENTER.strip("\n").split("\n")
    asm += function("tessera_find_and_jump", code.find_and_jump())
    entries = []  # what programs are to call, by labels that the linker need not look up where that is possible
    for index, name in enumerate(symbols):
        kind, stream = kinds.get(name, ("jump", None))
        entries.append(name if kind in ("hook", "blocks", *INNER) else f".Lentry{index}")
        if kind not in ("hook", "blocks"):
            label = "tessera_gated_" + name if kind in INNER else name
            default = PER_THREAD_STREAM if name.endswith(("_ptsz", "_ptds")) else LEGACY_STREAM
            if kind in GATED:
                body = code.gated(index, stream, default)
            elif kind == "context":
                body = code.context(index)
            else:
                body = code.jump(index)
            asm += [f".globl {label}", *function(label, [f".Lentry{index}:"] + code.ENTRY + body, 6 if kind in GATED else 4)]
            asm += [f".hidden {label}"] * (kind in INNER)
        asm += [f".Lload{index}:", *code.load_stub(index)]
    asm += [".section .data.rel.local, \"aw\"", ".globl tessera_real_table", ".hidden tessera_real_table",
            ".p2align 6", "tessera_real_table:"]
    asm += [f".quad .Lload{i}" for i in range(len(symbols))]
    asm += [".section .data.rel.ro, \"aw\"", ".p2align 3"]
    for table, word, values in [("stub", "quad", [f".Lload{i}" for i in range(len(symbols))]),
                                ("entry", "quad", entries),
                                ("changed", "byte", [int(name in kinds) for name in symbols])]:
        asm += [f".globl tessera_{table}_table", f".hidden tessera_{table}_table", f"tessera_{table}_table:"]
        asm += [f".{word} {value}" for value in values]
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
