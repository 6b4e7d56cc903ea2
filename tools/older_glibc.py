#!/usr/bin/env python3
"""older_glibc.py FILE...: makes programs and libraries that were linked with glibc 2.32 to 2.36 run with glibc 2.31, too.

Of what they need only a few functions are newer. Those that glibc 2.32 to 2.34 moved into libc.so.6 were in libraries
beside it: they are asked for without a version, and those libraries by name, which every later glibc has as well. Those
that are new are in libtessera-glibc.so.1 (src/glibc). What this tool does not know stays as it is; tools/check_dist.py
says so.
"""
import struct
import subprocess
import sys

from elf_file import UNVERSIONED, VERSYM, ElfFile

OLDEST = (2, 31)
OURS = "libtessera-glibc.so.1"
# Where glibc 2.31 has what later ones have in libc.so.6. Each with one version only, so that none is confused.
MOVED = {
    "libdl.so.2": "dladdr dlclose dlerror dlopen dlsym",
    "libpthread.so.0": """pthread_attr_setstacksize pthread_cancel pthread_cond_clockwait pthread_condattr_setclock pthread_create
        pthread_detach pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_kill
        pthread_mutex_consistent pthread_mutex_trylock pthread_mutexattr_destroy pthread_mutexattr_init
        pthread_mutexattr_setpshared pthread_mutexattr_setrobust pthread_once pthread_rwlock_destroy pthread_rwlock_init
        pthread_rwlock_rdlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_setname_np pthread_setspecific
        pthread_sigmask sem_destroy sem_init sem_post sem_wait""",
    "librt.so.1": "mq_getattr",
}
# What libtessera-glibc.so.1 has.
NEW = """__libc_single_threaded __libc_start_main arc4random close_range closefrom fstat fstat64 fstatat64 lstat lstat64
    stat stat64"""
LIBRARY = {name: library for library, names in {**MOVED, OURS: NEW}.items() for name in names.split()}


def number(version):
    """GLIBC_2.31 as (2, 31); a version that has none, such as GLIBC_PRIVATE, is above all."""
    digits = version.removeprefix("GLIBC_").split(".")
    return tuple(map(int, digits)) if all(digit.isdigit() for digit in digits) else (sys.maxsize,)


def too_new(version, oldest=OLDEST):
    """Whether the Version is one of the C library's that `oldest` lacks."""
    return version is not None and version.name.startswith("GLIBC_") and number(version.name) > oldest


def known(symbol):
    return too_new(symbol.version) and symbol.name in LIBRARY


def clear(file):
    """The file's bytes, without versions for what is known, and the libraries that have it."""
    data = bytearray(file.data)
    cleared = [symbol for symbol in file.undefined if known(symbol)]
    for symbol in cleared:
        struct.pack_into("<H", data, file.section(VERSYM)[0] + 2 * symbol.index, UNVERSIONED)
    unused = {symbol.version.index for symbol in cleared} - {
        symbol.version.index for symbol in file.undefined if symbol.version and not known(symbol)}
    # From the last to the first: each is led to by one that is still there.
    for version in reversed([version for version in file.versions if version.index in unused]):
        take_out(data, file, version)
    return bytes(data), sorted({LIBRARY[symbol.name] for symbol in cleared})


def take_out(data, file, version):
    """The file does not ask for this version any more."""
    beside = [other for other in file.versions if other.library == version.library]
    count_at = beside[0].before - 6
    count, = struct.unpack_from("<H", data, count_at)
    if count == 1:
        raise ValueError(f"{file.path}: needs nothing of {version.library} but {version.name}")
    distance, = struct.unpack_from("<I", data, version.position + 12)
    so_far, = struct.unpack_from("<I", data, version.before)
    struct.pack_into("<I", data, version.before, so_far + distance if distance else 0)
    struct.pack_into("<H", data, count_at, count - 1)


def mend(path):
    file = ElfFile(path)
    data, libraries = clear(file)
    if not libraries:
        return
    with open(path, "r+b") as out:
        out.write(data)
    added = [library for library in libraries if library not in file.needed]
    if added:  # before what the file has; so ours is found before a newer C library's
        subprocess.run(["patchelf", *(word for library in added for word in ("--add-needed", library)), path], check=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for argument in sys.argv[1:]:
        mend(argument)
