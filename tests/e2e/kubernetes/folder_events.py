"""What appears in a folder and vanishes from it, by inotify."""
import ctypes
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
MOVED_FROM, MOVED_TO, CREATED, DELETED = 0x40, 0x80, 0x100, 0x200  # linux/inotify.h
EVENT = struct.Struct("iIII")


class FolderEvents:
    def __init__(self, folder):
        self.fd = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0 or LIBC.inotify_add_watch(self.fd, os.fsencode(folder), MOVED_FROM | MOVED_TO | CREATED | DELETED) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}: {os.strerror(ctypes.get_errno())}")

    def fileno(self):
        return self.fd

    def read(self):
        """(name, whether it appeared), in the order in which it happened; none if there is nothing new."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        while data:
            _, mask, _, length = EVENT.unpack_from(data)
            yield os.fsdecode(data[EVENT.size:EVENT.size + length].rstrip(b"\0")), bool(mask & (CREATED | MOVED_TO))
            data = data[EVENT.size + length:]

    def close(self):
        os.close(self.fd)
