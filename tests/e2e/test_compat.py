"""Programs do more than launch and allocate: fork, exec, threads, captures, look-ups, several GPUs and contexts."""
import pathlib
import re
import socket
import struct
import subprocess
import threading
import unittest

from harness import (BIN, DEVICE_UNAVAILABLE, MIB, NOT_INITIALIZED, NO_DEVICE, SHIM, SOFT, SUCCESS, SYSTEM_NOT_READY,
                     Shell, SoftGpuTest, wait_for)
from test_daemon import MAGIC, REFUSED, VERSION

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"


class Programs(SoftGpuTest):
    SPEC = "1x4GiB,speed=4M"

    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.create("team")

    def count(self, shell):
        return shell.ok("count")["count"]

    # ---- processes ----

    def test_a_child_may_use_cuda_if_its_parent_has_not(self):
        shell = self.shell_in("team")
        child = shell.ok("fork")
        self.assertEqual((child["hangs"], child["crashed"], child["init"], child["context"]), (0, 0, SUCCESS, SUCCESS))
        shell.ok("init")
        shell.ok("context")
        wait_for("the child's memory to come back", lambda: self.current("team") == self.CONTEXT_BYTES)

    def test_a_child_gets_an_error_if_its_parent_has(self):
        shell = self.shell_with_context("team")
        shell.ok("launch", 3)
        child = shell.ok("fork")
        self.assertEqual((child["hangs"], child["crashed"]), (0, 0))
        self.assertIn(NOT_INITIALIZED, (child["init"], child["context"]))
        self.assertNotEqual(child["context"], SUCCESS)
        shell.ok("launch", 3)  # the parent is none the worse for it
        self.assertEqual(self.count(shell), 6)
        vgpu = self.vgpu("team")
        self.assertEqual(len(vgpu["processes"]), 1)
        self.assertLess(vgpu["memory_peak_bytes"], 2 * self.CONTEXT_BYTES)  # the child asked for nothing in its name

    def test_what_a_program_execs_is_in_its_vgpu_too(self):
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 64 * MIB)
        shell.ok("exec")
        shell.ok("init")
        wait_for("the memory of before to come back", lambda: self.current("team") == 0)
        shell.ok("context")
        self.assertEqual(self.current("team"), self.CONTEXT_BYTES)
        self.assertEqual(self.vgpu("team")["processes"], [shell.pid])

    # ---- threads and streams ----

    def test_eight_threads_launch_at_once(self):
        rival = self.rival()
        shell = self.shell_with_context("team")
        shell.ok("threads", 8, 50)
        self.assertEqual(self.count(shell), 400)
        rival.finish()

    def test_per_thread_default_streams(self):
        rival = self.rival()
        shell = self.shell_with_context("team")
        self.assertEqual(shell.ok("per_thread", 40)["count"], 40)
        shell.ok("launch", 2)
        self.assertEqual(shell.ok("per_thread", 10)["count"], 52)
        rival.finish()

    def test_a_stream_that_is_destroyed_under_its_work(self):
        rival = self.rival()
        shell = self.shell_with_context("team")
        for n in range(1, 6):
            shell.ok("drop_stream", 20, 1000)
            shell.ok("sync")
            self.assertEqual(self.count(shell), 20 * n)
        wait_for("the token to come back", lambda: self.vgpu("team")["state"] == "idle")
        rival.finish()

    def rival(self):
        """Somebody who always wants the GPU, so that gates are bounded and open and close."""
        self.create("rival")
        tenant = self.tenant_in("rival", "--kernel-us", "300")
        tenant.until("ready")
        tenant.makes_progress()
        return tenant

    def test_a_captured_graph_holds_what_was_launched_and_nothing_else(self):
        self.capture(self.shell_with_context("team"), 1)
        rival = self.rival()
        for _ in range(4):  # new programs, as what goes wrong may do so at the first capture only
            self.capture(self.shell_with_context("team"), 4)
        rival.makes_progress()
        rival.finish()

    def capture(self, shell, times):
        for n in range(1, times + 1):
            self.assertEqual(shell.ok("capture", 30, 100)["nodes"], 30)
            self.assertEqual(self.count(shell), 60 * n)

    # ---- contexts ----

    def test_several_contexts(self):
        shell = self.shell_with_context("team")
        shell.ok("launch", 3)
        second = shell.ok("context")["id"]
        shell.ok("launch", 4)
        shell.ok("current", 0)
        shell.ok("launch", 5)
        self.assertEqual(self.count(shell), 8)
        shell.ok("current", second)
        self.assertEqual(self.count(shell), 4)
        shell.ok("destroy", second)
        shell.ok("current", 0)
        shell.ok("launch", 1)
        self.assertEqual(self.count(shell), 9)

    def test_the_primary_context_is_reset(self):
        shell = self.shell_in("team")
        shell.ok("init")
        shell.ok("primary")
        shell.ok("launch", 10)
        shell.ok("sync")
        shell.ok("primary_reset")
        wait_for("its memory to come back", lambda: self.current("team") < self.CONTEXT_BYTES)
        shell.ok("primary")
        self.assertGreaterEqual(self.current("team"), self.CONTEXT_BYTES)
        shell.ok("allocate", "alloc", 4 * MIB)
        shell.ok("primary_release")


class TwoGpus(SoftGpuTest):
    SPEC = "2x2GiB"

    def test_a_program_has_the_gpu_of_its_vgpu_only(self):
        self.start_daemon()
        self.create("second", gpu=1, memory_limit="512M")
        shell = self.shell_in("second")  # tessera run shows it that one
        shell.ok("init")
        self.assertEqual(shell.ok("devices")["count"], 1)
        shell.ok("context")
        self.assertEqual(shell.ok("info")["device_total"], 512 * MIB)

        shell = self.shell_in("second", env={"CUDA_VISIBLE_DEVICES": "0,1"})
        shell.ok("init")
        self.assertEqual(shell.ok("devices")["count"], 2)
        self.assertEqual(shell.ask("context", 0)["result"], DEVICE_UNAVAILABLE)
        self.assertEqual(shell.ask("primary", 0)["result"], DEVICE_UNAVAILABLE)
        shell.ok("context", 1)
        shell.ok("launch", 2)
        self.assertEqual(shell.ok("count")["count"], 2)

    def test_a_program_in_a_vgpu_on_each(self):
        self.start_daemon()
        self.create("first", gpu=0, memory_limit="256M")
        self.create("second", gpu=1, memory_limit="512M")
        shell = self.shell_in("first,second")
        shell.ok("init")
        for device, total in ((0, 256 * MIB), (1, 512 * MIB)):
            shell.ok("context", device)
            self.assertEqual(shell.ok("info")["total"], total)
            shell.ok("launch", 7)
            self.assertEqual(shell.ok("count")["count"], 7)


class NoDaemon(SoftGpuTest):
    """A program that was told to be in a vGPU, and whose daemon is not what it should be."""

    def shell(self):
        env = {"LD_PRELOAD": str(SHIM), "TESSERA_REAL_LIBCUDA": str(SOFT), "TESSERA_VGPU": "team"}
        return Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env=env))

    def said_by(self, shell):
        shell.child.stdin.close()
        shell.child.stdin = None
        shell.child.wait()
        return shell.child.stderr.read()

    def test_gone_at_the_start(self):
        shell = self.shell()
        self.assertEqual(shell.ask("init")["result"], SYSTEM_NOT_READY)
        self.assertNotEqual(shell.ask("context")["result"], SUCCESS)
        self.start_daemon()
        self.create("team")
        shell.ok("init")  # better luck now
        shell.ok("context")
        self.assertIn("tesserad", self.said_by(shell))

    def test_one_that_does_not_know_the_vgpu(self):
        self.start_daemon()
        shell = self.shell()
        self.assertEqual(shell.ask("init")["result"], NO_DEVICE)
        self.assertIn("there is no vGPU team", self.said_by(shell))

    def test_one_of_another_protocol_version(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(str(self.run_dir / "client.sock"))
        listener.listen()

        def serve():
            with listener.accept()[0] as connection:
                connection.recv(8192)
                body = struct.pack("<iI504s", 71, 0, b"other")
                connection.send(struct.pack("<IHHII", MAGIC, VERSION + 1, REFUSED, len(body), 0) + body)
                connection.recv(8192)  # until the program goes

        server = threading.Thread(target=serve)
        server.start()
        self.addCleanup(server.join)
        shell = self.shell()
        self.assertNotEqual(shell.ask("init")["result"], SUCCESS)
        said = self.said_by(shell)
        self.assertIn(f"protocol {VERSION + 1}", said)
        self.assertIn(f"shim {VERSION}", said)


class LookUps(SoftGpuTest):
    """cuGetProcAddress answers with the shim's functions, those that are only jumps as well: their calls can be watched."""

    VERSIONS = (2000, 4000, 10000, 11030, 12000, 13000)
    FLAGS = {"default": 0, "legacy stream": 1, "per-thread stream": 2}

    def names(self):
        kinds = [line.split("#")[0].split() for line in (SOURCES / "shim" / "functions.def").read_text().splitlines()]
        symbols = set((SOURCES / "cuda" / "libcuda.symbols").read_text().split())
        listed = {words[1] for words in kinds if words}
        return {variant for name in listed for variant in (name, name + "_ptsz", name + "_ptds") if variant in symbols}

    def looked_up(self, version, flags, names, env):
        shell = Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env=env))
        answer = shell.ok("lookup", version, flags, *sorted(names))
        shell.end()
        return {name: found.split() for name, found in answer.items() if name != "result"}

    def test_both_versions_of_it_give_the_shims_functions(self):
        ours = self.names()
        names = {re.sub(r"(_v\d+)?(_pts[zd]|_ptds)?$", "", name) for name in ours}
        plain = {"LD_LIBRARY_PATH": str(SOFT.parent)}
        shimmed = {"LD_PRELOAD": str(SHIM), "TESSERA_REAL_LIBCUDA": str(SOFT)}
        seen = set()
        for version in self.VERSIONS:
            for flags in self.FLAGS.values():
                wanted = self.looked_up(version, flags, names, plain)
                got = self.looked_up(version, flags, names, shimmed)
                for name, where in wanted.items():
                    with self.subTest(name, version=version, flags=flags):
                        if not where:  # the driver has none of that version
                            self.assertEqual(got[name], [])
                            continue
                        replaced = ours & set(where[1:])
                        self.assertEqual(got[name][0], str(SHIM))
                        # Functions of one code may share an address in the driver, and then go by another's name.
                        if replaced and got[name][1:]:
                            self.assertTrue(replaced & set(got[name][1:]), got[name])
                        seen |= replaced
        # Which symbols a driver hands out at all is its own business; but these many must have been compared.
        self.assertGreater(len(seen), 120)


if __name__ == "__main__":
    unittest.main()
