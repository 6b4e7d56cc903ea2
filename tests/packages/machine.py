"""This machine, or another system's files, with a layer above them, which takes all changes and goes with the test."""
import ctypes
import os
import pathlib
import subprocess
import tempfile

CLONE_NEWNS = 0x00020000


def why_not():
    """Why there can be none here; empty if there can."""
    if os.getuid() != 0:
        return "only root can put a layer above the machine's files: run it as root"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return f"no mount namespace of its own: {os.strerror(ctypes.get_errno())}; run it with CAP_SYS_ADMIN"
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    try:
        Machine().close()
    except subprocess.CalledProcessError as error:
        return f"no overlay above /: {error.stderr.strip()}"
    return ""


class Machine:
    """`path` is its root, `layer` has what is not as in the real one. Mounts are of this process alone (why_not)."""

    def __init__(self, below="/"):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-machine-"))
        self.path, self.layer = self.folder / "root", self.folder / "layer"
        try:
            self.mount("-t", "tmpfs", "tmpfs", self.folder)
            for name in ("root", "layer", "work"):
                (self.folder / name).mkdir()
            self.mount("-t", "overlay", "overlay", "-o",
                       f"lowerdir={below},upperdir={self.layer},workdir={self.folder / 'work'}", self.path)
            for name in ("proc", "sys", "dev"):
                self.mount("--rbind", f"/{name}", self.path / name)
            for name in ("run", "tmp"):
                self.mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", self.path / name)
        except subprocess.CalledProcessError:
            self.close()
            raise
        # man-db indexes all manuals of the machine after each package: that takes longer than all the rest.
        (self.path / "var/lib/man-db/auto-update").unlink(missing_ok=True)

    def close(self):
        subprocess.run(["umount", "-R", "-l", self.folder], stderr=subprocess.DEVNULL)
        self.folder.rmdir()

    @staticmethod
    def mount(*words):
        subprocess.run(["mount", *map(str, words)], check=True, capture_output=True, text=True)

    def command(self, *words):
        return ["chroot", str(self.path), *map(str, words)]

    def run(self, *words, check=True, **options):
        done = subprocess.run(self.command(*words), text=True, capture_output=True, timeout=60, **options)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def changes(self):
        """Files of the layer, and folders that only it has, from /."""
        found = set()
        for folder, folders, files in os.walk(self.layer):
            here = pathlib.Path("/") / pathlib.Path(folder).relative_to(self.layer)
            found.update(str(here / name) for name in files)
            found.update(str(here / name) for name in folders if not (here / name).exists())
        return found
