#!/usr/bin/env python3
"""check_dist.py FOLDER: checks that what `make dist` laid there runs on other systems, file by file, symbol by symbol.

Each symbol that a program or library asks for is in a library of the folder, or in a C library as old as glibc 2.31;
2.28 for the two libraries that programs of others load. Ends with 1 and a line for each fault otherwise.
"""
import collections
import pathlib
import sys

import older_glibc
from elf_file import ElfFile, NotElf

# What every system has: the C library's own files, and the one that unwinds stacks.
C_LIBRARY = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}
UNWINDER, UNWINDER_OLDEST = "libgcc_s.so.1", (7, 0, 0)
INTERPRETER = "/lib64/ld-linux-x86-64.so.2"
# Loaded by programs of others, with whatever C library they have.
LOADED = {"lib/tessera/libcuda.so.1", "lib/tessera/libnvidia-ml.so.1"}
LOADED_OLDEST = (2, 28)


class Folder:
    """The ELF files of a folder, by their paths in it."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.files, self.symbols = {}, 0
        for path in sorted(self.root.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            self.files[str(path.relative_to(self.root))] = ElfFile(path)

    def library(self, user, name):
        """The library `name` that the linker finds for the file at `user`; None if it is not of the folder."""
        for place in self.files[user].runpath.split(":"):
            path = (self.root / user).parent / place.removeprefix("$ORIGIN").lstrip("/") / name
            path = path.resolve()
            if place.startswith("$ORIGIN") and path.is_relative_to(self.root):
                found = str(path.relative_to(self.root))
                if found in self.files:
                    return found
        return None

    def libraries(self, user):
        """The libraries of the folder that the file at `user` needs, and that these need."""
        found, waiting = {}, collections.deque([user])
        while waiting:
            file = waiting.popleft()
            for name in self.files[file].needed:
                path = self.library(file, name)
                if path and path not in found:
                    found[path] = name
                    waiting.append(path)
        return list(found)

    def faults(self):
        """What is wrong, a line each."""
        return [f"{path}: {fault}" for path in self.files for fault in (
            *self._faults_of_libraries(path), *self._faults_of_versions(path), *self._faults_of_symbols(path))]

    def _faults_of_libraries(self, path):
        file = self.files[path]
        if file.interpreter not in (None, INTERPRETER):
            yield f"is started by {file.interpreter}, not by {INTERPRETER}"
        for name in file.needed:
            if name not in C_LIBRARY and name != UNWINDER and not self.library(path, name):
                yield f"needs {name}, which its RUNPATH '{file.runpath}' does not lead to in the folder"
        ours = older_glibc.OURS
        if ours in file.needed and "libc.so.6" in file.needed and file.needed.index(ours) > file.needed.index("libc.so.6"):
            yield f"needs {ours} behind libc.so.6: newer C libraries would be asked first"

    def _faults_of_versions(self, path):
        """Versions that the linker looks for, whether a symbol has them or not."""
        file, oldest = self.files[path], LOADED_OLDEST if path in LOADED else older_glibc.OLDEST
        for version in file.versions:
            names = " ".join(symbol.name for symbol in file.undefined if symbol.version is version)
            if version.library in C_LIBRARY:
                if not version.name.startswith("GLIBC_") or older_glibc.too_new(version, oldest):
                    yield f"needs {version.name} of {version.library}, above {'.'.join(map(str, oldest))}: {names}"
            elif version.library == UNWINDER:
                if tuple(map(int, version.name.removeprefix("GCC_").split("."))) > UNWINDER_OLDEST:
                    yield f"needs {version.name} of {UNWINDER}, above {'.'.join(map(str, UNWINDER_OLDEST))}: {names}"
            else:
                library = self.library(path, version.library)
                if library and version.name not in self.files[library].provided_versions.values():
                    yield f"needs {version.name} of {version.library}, which has no such version: {names}"

    def _faults_of_symbols(self, path):
        file = self.files[path]
        exported = {}
        for library in self.libraries(path):
            for symbol in self.files[library].defined:
                exported.setdefault(symbol.name, set()).update({symbol.version, (library, symbol.version)})
        own = {symbol.name for symbol in file.defined}
        for symbol in file.undefined:
            self.symbols += 1
            if symbol.version:
                library = self.library(path, symbol.version.library)
                if library and (library, symbol.version.name) not in exported.get(symbol.name, ()):
                    yield f"needs {symbol.name} of {symbol.version.name}, which {symbol.version.library} does not have"
            elif symbol.name not in exported and symbol.name not in own and not symbol.weak:
                moved = older_glibc.LIBRARY.get(symbol.name)
                if moved is None:
                    yield f"needs {symbol.name}, which no library of the folder has"
                elif moved not in file.needed:
                    yield f"needs {symbol.name}, but not {moved}, where glibc 2.31 has it"


def main(root):
    try:
        folder = Folder(root)
    except NotElf as error:
        return f"check_dist.py: {error}"
    if not folder.files:
        return f"check_dist.py: no program or library in {root}"
    faults = folder.faults()
    if faults:
        return "\n".join([*faults, f"check_dist.py: {len(faults)} faults. A function of a newer C library needs a line in "
                          "tools/older_glibc.py; a new one its code in src/glibc, too."])
    print(f"{root}: {len(folder.files)} programs and libraries, {folder.symbols} symbols; glibc 2.31 has all that is not there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
