"""Features that tests need and a machine may lack, each tried out: the conditions of tests/allowed_skips.toml.

  python3 tools/machine_conditions.py    which of them hold here
"""
import ctypes
import functools
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

LIBC = ctypes.CDLL(None, use_errno=True)


def works(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def works_in_child(action):
    """Whether action() is true in a process of its own."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = action()
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


def mounts(script="mount -t tmpfs tmpfs /mnt"):
    return works("unshare", "--mount", "sh", "-c", f"mount --make-rprivate / && {script}")


def overlays():
    return mounts("mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root && mount -t overlay overlay "
                  "-o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root")


def fuse():
    if os.geteuid() == 0:
        return os.access("/dev/fuse", os.R_OK | os.W_OK) and mounts()
    return os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None


def users_make_namespaces():
    other = ("setpriv", "--reuid=54322", "--regid=65534", "--clear-groups", "--") if os.geteuid() == 0 else ()
    return works(*other, "unshare", "--map-root-user", "true")


class Instructions(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""
    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def seccomp_listens():
    """Installs a filter with a listener, as the kernel gate does."""
    def install():
        PR_SET_NO_NEW_PRIVS, SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER = 38, 317, 1, 8
        allow = struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000)  # BPF_RET, SECCOMP_RET_ALLOW
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return LIBC.syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, ctypes.byref(Instructions(1, allow))) >= 0
    return works_in_child(install)


def bpf_loads():
    """Loads a program for tracepoints that returns 0."""
    SYS_bpf, BPF_PROG_LOAD, RAW_TRACEPOINT = 321, 5, 17
    code = ctypes.create_string_buffer(struct.pack("<QQ", 0xb7, 0x95))  # r0 = 0; exit
    license_ = ctypes.create_string_buffer(b"GPL")
    attributes = ctypes.create_string_buffer(
        struct.pack("<IIQQ", RAW_TRACEPOINT, 2, ctypes.addressof(code), ctypes.addressof(license_)), 128)
    fd = LIBC.syscall(SYS_bpf, BPF_PROG_LOAD, attributes, len(attributes))
    if fd < 0:
        return False
    os.close(fd)
    return True


def runs_32_bit():
    """Runs a program of 32 bits that calls exit(0) by int 0x80."""
    start = 0x8048000
    code = bytes.fromhex("31c0 40 31db cd80")  # xor eax, eax; inc eax; xor ebx, ebx; int 0x80
    size = 52 + 32 + len(code)
    elf = b"\x7fELF\1\1\1".ljust(16, b"\0") + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, start + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    elf += struct.pack("<IIIIIIII", 1, 0, start, start, size, size, 5, 4096) + code
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "exit"
        program.write_bytes(elf)
        program.chmod(0o755)
        try:
            return works(str(program))
        except OSError:
            return False


CONDITIONS = {
    "always": lambda: True,
    "not root": lambda: os.geteuid() != 0,
    "no mounts": lambda: not mounts(),
    "no overlay": lambda: not overlays(),
    "no FUSE": lambda: not fuse(),
    "no /dev/fuse": lambda: not os.path.exists("/dev/fuse"),
    "no user namespaces for users": lambda: not users_make_namespaces(),
    "no seccomp listener": lambda: not seccomp_listens(),
    "no count of seccomp filters": lambda: "\nSeccomp_filters:" not in pathlib.Path("/proc/self/status").read_text(),
    "no BPF": lambda: not bpf_loads(),
    "no kernel types": lambda: not os.access("/sys/kernel/btf/vmlinux", os.R_OK),
    "no 32-bit programs": lambda: not runs_32_bit(),
    "no nvcc": lambda: not any(map(os.path.exists, ("/usr/local/cuda/bin/nvcc", "/usr/bin/nvcc"))),
    "NVIDIA driver": lambda: os.path.exists("/dev/nvidiactl"),
    "another driver": lambda: "TESSERA_TEST_LIBCUDA" in os.environ,
}


@functools.cache
def holds(condition):
    return CONDITIONS[condition]()


if __name__ == "__main__":
    for name in CONDITIONS:
        print(f"{'holds' if holds(name) else '-':<6} {name}")
