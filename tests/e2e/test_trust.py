"""What other users made, and what the environment says to other programs, leads nobody astray."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, DEADLINE_S, MIB, SHIM, SOFT, SUCCESS, TENANT, SoftGpuTest, wait_for

OTHER = 54321

# A server as another user makes it to be told others' secrets: says when it is there, and counts who says something.
FALSE_DAEMON = """
import socket, sys
run_dir = sys.argv[1]
api, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for each, name in ((api, "api.sock"), (client, "client.sock")):
    each.bind(f"{run_dir}/{name}")
    each.listen()
print("ready", flush=True)
for each in (api, client):
    connection = each.accept()[0]
    print("told" if connection.recv(4096) else "nothing", flush=True)
"""


@unittest.skipIf(os.geteuid() != 0, "two users need root")
class AnotherUsersDaemon(SoftGpuTest):
    def test_it_is_told_nothing(self):
        folder = tempfile.mkdtemp(prefix="tessera-test-")
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, OTHER, OTHER)
        server = self.spawn("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", sys.executable, "-c",
                            FALSE_DAEMON, folder)
        self.assertEqual(server.stdout.readline(), "ready\n")
        done = self.tessera("ps", "--run-dir", folder, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"is user {OTHER}'s", done.stderr)
        self.assertEqual(server.stdout.readline(), "nothing\n")
        env = {"TESSERA_RUN_DIR": folder, "TESSERA_VGPU": "a", "TESSERA_REAL_LIBCUDA": str(SOFT), "LD_PRELOAD": str(SHIM)}
        done = subprocess.run([TENANT, "--kernels", "1"], env={**self.env, **env}, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"is user {OTHER}'s", done.stderr)
        self.assertEqual(server.stdout.readline(), "nothing\n")

    def test_a_folder_that_he_made_first_is_not_used(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-test-"))
        self.addCleanup(shutil.rmtree, folder)
        folder.chmod(0o1777)
        for name in ("dir", "link"):
            if name == "dir":
                (folder / name).mkdir()
            else:
                (folder / name).symlink_to(self.run_dir)
            os.lchown(folder / name, OTHER, OTHER)
            done = self.tessera("run", "--soft", "--run-dir", folder / name, "--", "true", check=False)
            self.assertEqual(done.returncode, 125, done.stderr)
            self.assertIn("another user", done.stderr)
            self.assertEqual(list(self.run_dir.iterdir()), [])


# In place of a program: writes its environment beside it, and becomes it.
WRITES_ENVIRONMENT = """#!/bin/sh
env >> "$0.env"
exec "$0.real" "$@"
"""


class Environment(SoftGpuTest):
    OF_OTHERS = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent", "CUDA_LAUNCH_BLOCKING": "1",
                 "NVIDIA_VISIBLE_DEVICES": "void", "LD_LIBRARY_PATH": "/nonexistent", "LD_BIND_NOT": "1",
                 "TESSERA_SWAP": "on", "MALLOC_ARENA_MAX": "1"}

    def setUp(self):
        super().setUp()
        self.build = self.build_for_everybody()
        self.lib = self.build / "lib" / "tessera"
        self.children_of = {self.lib / name for name in ("tessera-mover", "tessera-channel-test", "tessera-gate-holder",
                                                        "tessera-swap-holder")}
        for program in self.children_of | {self.build / "bin" / "tesserad"}:
            program.rename(f"{program}.real")
            program.write_text(WRITES_ENVIRONMENT)
            program.chmod(0o755)

    def environment_of(self, program):
        file = pathlib.Path(f"{program}.env")
        return {line.split("=")[0] for line in file.read_text().splitlines() if "=" in line} if file.exists() else None

    def check(self, program):
        names = wait_for(f"{program.name} to start", lambda: self.environment_of(program))
        self.assertIn("PATH", names)
        self.assertEqual(names & {*self.OF_OTHERS, "LD_PRELOAD"}, set(), program.name)

    def run_tessera(self, *words, **options):
        return subprocess.run([self.build / "bin" / "tessera", *words], env={**self.env, **self.OF_OTHERS}, text=True,
                              capture_output=True, timeout=DEADLINE_S, **options)

    def swap(self):
        """Runs a program whose memory does not fit, so that there is a mover."""
        says = "init\ncontext\n" + 4 * f"allocate alloc {32 * MIB}\n"
        done = self.run_tessera("run", f"--soft={self.SPEC}", "--memory", "128M:1G", "--", BIN / "driver_shell", input=says)
        self.assertEqual([json.loads(line)["result"] for line in done.stdout.splitlines()], 6 * [SUCCESS], done.stderr)

    def test_a_users_own_daemon_and_what_it_starts(self):
        self.swap()
        self.check(self.build / "bin" / "tesserad")
        self.check(self.lib / "tessera-mover")
        self.check(self.lib / "tessera-swap-holder")

    def test_what_a_daemon_starts_that_somebody_started_by_hand(self):
        with open(self.run_dir / "daemon.log", "a") as log:
            self.daemon = self.spawn(self.build / "bin" / "tesserad.real", *self.DAEMON_FLAGS, "--run-dir", self.run_dir,
                                     env=self.OF_OTHERS, stderr=log)
        wait_for("the daemon", self.answers)
        self.swap()
        self.check(self.lib / "tessera-mover")
        self.check(self.lib / "tessera-swap-holder")
        if self.run_tessera("run", f"--soft={self.SPEC}", "--enforce", "kernel", "--", "true").returncode == 0:
            self.check(self.lib / "tessera-gate-holder")

    def test_the_self_test(self):
        self.run_tessera("doctor", f"--soft={self.SPEC}")
        self.check(self.lib / "tessera-channel-test")


if __name__ == "__main__":
    unittest.main()
