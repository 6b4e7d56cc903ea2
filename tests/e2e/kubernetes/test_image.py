"""`make image`, on an empty base and with a dist/ that has a file of each kind."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import DEADLINE_S  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[3]


@unittest.skipIf(os.geteuid() != 0, "images in a test need root")
class Image(unittest.TestCase):
    def setUp(self):
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("podman needs mounts, which cannot be had here")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tessera-image-")))
        self.source = self.folder / "source"
        for name in ("tools/image.sh", "tools/flat_seccomp.py", "CMakeLists.txt"):
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.source / name)
        shutil.copytree(SOURCE / "deploy/image", self.source / "deploy/image", symlinks=True)
        storage = self.folder / "storage.conf"
        storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{self.folder}/graph"\nrunroot = "{self.folder}/run"\n')
        containers = self.folder / "containers.conf"
        containers.write_text('[engine]\nlock_type = "file"\nevents_logger = "file"\n')
        self.env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(containers), "TMPDIR": str(self.folder)}

    def run_in(self, *words, check=True, **variables):
        return subprocess.run(words, cwd=self.source, env={**self.env, **variables}, capture_output=True, text=True, check=check,
                              timeout=DEADLINE_S)

    def test_it_has_dist_and_what_starts_tesserad(self):
        for path in ("bin/tesserad", "bin/tessera-kubelet", "lib/tessera/libcuda.so.1", "lib/tessera/deps/libz.so.1", "share/man/man1/x"):
            file = self.source / "dist" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(path)
            file.chmod(0o755)
        done = self.run_in("tools/image.sh", BASE="scratch", IMAGE="registry.example.com/tessera:1")
        self.assertEqual(done.stdout, "image: registry.example.com/tessera:1\n")
        (image,) = json.loads(self.run_in("podman", "image", "inspect", "registry.example.com/tessera:1").stdout)
        self.assertEqual(image["Config"]["Cmd"], ["tessera", "--help"])
        root = pathlib.Path(self.run_in("podman", "image", "mount", "registry.example.com/tessera:1").stdout.strip())
        self.addCleanup(self.run_in, "podman", "image", "unmount", "--all")
        found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}
        self.assertEqual(found, {"usr/local/bin/tesserad", "usr/local/bin/tessera-kubelet", "usr/local/bin/tessera-node",
                                 "usr/local/lib/tessera/libcuda.so.1", "usr/local/lib/tessera/deps/libz.so.1",
                                 "usr/local/share/tessera/seccomp.json", "etc/ld.so.cache", "etc/ld.so.conf.d/nvidia.conf"})
        self.assertEqual(os.readlink(root / "etc/ld.so.cache"), "/usr/local/nvidia/ld.so.cache")
        self.assertTrue(os.access(root / "usr/local/bin/tessera-node", os.X_OK))

    def test_without_dist_it_says_what_to_do(self):
        done = self.run_in("tools/image.sh", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run 'make dist' first", done.stderr)


if __name__ == "__main__":
    unittest.main()
