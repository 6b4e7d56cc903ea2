"""tessera migrate: programs that go to another GPU, and go on there."""
import pathlib
import sys
import time
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import MIB, OUT_OF_MEMORY, SoftGpuTest, wait_for  # noqa: E402

CHUNK = 64 * MIB


class Migrate(SoftGpuTest):
    SPEC = "3x1GiB"
    CONFIG = '[swap]\nsize = "2G"\nfloor = "64M"\n'
    SIZE = 256 * MIB
    WORD = 0x5EED

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)

    def process(self, pid):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == pid)
        return process

    def migrated(self):
        return [event for event in self.json("events", "--last", 1000)["events"] if event["type"] == "vgpu.migrated"]

    def refused(self, *words):
        done = self.tessera(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def test_a_program_with_little_memory_goes_to_and_fro_and_works_on(self):
        self.create("team", gpu="0", compute_request=30, memory_request="64M")
        tenant = self.tenant_in("team", "--kernel-us", 1000)
        tenant.makes_progress()
        for target in (1, 0, 1):
            self.tessera("migrate", "team", "--gpu", target)
            self.assertEqual(self.vgpu("team")["gpu"], target)
            process = self.process(tenant.pid)
            self.assertEqual((process["gpu"], process["suspension"]), (target, None))
            self.assertGreater(self.gpu(target)["memory_used_bytes"], 0)
            self.assertEqual(self.gpu(1 - target)["memory_used_bytes"], 0)
            self.assertEqual(self.gpu(target)["memory_promised_bytes"], 64 * MIB)
            self.assertEqual(self.gpu(1 - target)["memory_promised_bytes"], 0)
            tenant.makes_progress(5)
        tenant.finish()
        metrics = self.metrics()
        for line in ('tessera_migrations_total{result="moved"} 3', 'tessera_suspensions_total{result="suspended"} 3',
                     'tessera_suspensions_total{result="resumed"} 3', 'tessera_suspension_seconds_count{phase="saves"} 3'):
            self.assertIn(line + "\n", metrics)

    def test_memory_goes_along(self):
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)
        for target in (1, 0):
            self.tessera("migrate", shell.pid, "--gpu", target)
            self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
            self.assertEqual(self.process(shell.pid)["gpu"], target)
            shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 2)
        self.assertEqual([event["text"].endswith(", its memory directly") for event in self.migrated()], [True, True])

    def test_memory_goes_along_to_and_fro_without_a_pause(self):
        """It has not come in from the GPU before, and goes on from there."""
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)
        for target in (1, 0) * 6:
            begin = time.monotonic()
            self.tessera("migrate", "team", "--gpu", target)
            self.assertLess(time.monotonic() - begin, 20, "something was waited for in vain")
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 1)

    def test_suspended_again_at_once_it_leaves_nothing_on_either_gpu(self):
        """Though it may not have come in from the GPU before."""
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)

        def room():
            gpus = (self.gpu(gpu) for gpu in (0, 1))
            return [gpu["swap"]["capacity_bytes"] - gpu["memory_unmanaged_bytes"] for gpu in gpus]
        self.tessera("suspend", "team")
        empty = room()
        self.tessera("resume", "team")
        for to, target in (("memory", 1), ("file", 0)):
            self.tessera("migrate", "team", "--gpu", target)
            self.tessera("suspend", "team", "--to", to)
            self.assertEqual(self.process(shell.pid)["suspended_to"], to)
            self.assertEqual(self.process(shell.pid)["memory_resident_bytes"], 0)
            wait_for("both GPUs to be empty", lambda: room() == empty)
            in_pool = self.SIZE if to == "memory" else 0
            wait_for("the pool to say so", lambda: self.gpu(target)["swap"]["pool_used_bytes"] == in_pool)
            self.tessera("resume", "team")
            self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
            shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 2)

    def test_memory_goes_along_though_a_mover_dies_on_the_direct_way(self):
        for step in ("mover.left.told", "mover.away.sent", "mover.freed.received", "mover.slot.reached", "mover.slot.lent"):
            with self.subTest(step):
                self.stop_daemon()
                self.env["TESSERA_FAULT"] = step
                self.start_daemon(config=self.CONFIG)
                self.env.pop("TESSERA_FAULT")
                self.create("team", gpu="0")
                shell = self.shell_with_context("team")
                memory = shell.filled(self.SIZE, self.WORD)
                self.tessera("migrate", "team", "--gpu", 1, check=False)
                self.assertIn("the mover ended", self.daemon_log())
                self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
                self.tessera("migrate", "team", "--gpu", 1 - self.vgpu("team")["gpu"])
                self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
                shell.end()
                self.tessera("vgpu", "rm", "team")

    def test_what_the_other_gpu_has_no_room_for_at_once_goes_through_host_memory(self):
        self.create("team", gpu="0")
        self.create("other", gpu="1")
        shell, other = self.shell_with_context("team"), self.shell_with_context("other")
        held = other.filled(768 * MIB, self.WORD + 1)
        memory = shell.filled(self.SIZE, self.WORD)
        self.tessera("migrate", "team", "--gpu", 1)
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        self.assertEqual(other.ok("compare", held, self.WORD + 1)["wrong"], 0)
        event, = self.migrated()
        self.assertNotIn("directly", event["text"])

    def test_a_vgpu_without_programs_and_one_that_is_suspended_move_at_once(self):
        self.create("empty", gpu="0", memory_request="64M")
        self.tessera("migrate", "empty", "--gpu", "1")
        self.assertEqual(self.vgpu("empty")["gpu"], 1)
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)
        self.tessera("suspend", "team")
        self.tessera("migrate", "team", "--gpu", "1")
        self.assertEqual((self.vgpu("team")["gpu"], self.process(shell.pid)["suspension"]), (1, "suspended"))
        self.tessera("resume", "team")
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)

    def on_gpus(self, count):
        """A program with memory on so many, of different sizes."""
        names = [f"v{gpu}" for gpu in range(count)]
        for gpu, name in enumerate(names):
            self.create(name, gpu=gpu)
        return self.shell_on_all(names, [64 * MIB * (gpu + 1) for gpu in range(count)], [self.WORD + gpu for gpu in range(count)])

    def expect_right_on_all(self, shell):
        for number in range(len(shell.memory)):
            self.expect_words(shell, number)

    def gone_out(self, name):
        """Bytes of the vGPU that were moved out of GPUs."""
        return self.vgpu(name)["moved_out_bytes"]

    def test_a_program_on_two_gpus_changes_their_places(self):
        shell = self.on_gpus(2)
        self.assertIn("1 is named", self.refused("migrate", shell.pid, "--gpu", "1"))
        self.assertIn("also uses vGPU v1", self.refused("migrate", "v0", "--gpu", "1"))
        for _ in range(3):
            homes = [self.vgpu(f"v{gpu}")["gpu"] for gpu in (0, 1)]
            self.tessera("migrate", shell.pid, "--gpu", "1,0")
            self.assertEqual([self.vgpu(f"v{gpu}")["gpu"] for gpu in (0, 1)], homes[::-1])
            self.expect_right_on_all(shell)
        shell.end()
        wait_for("the pools to be empty", lambda: all(self.gpu(gpu)["swap"]["pool_used_bytes"] == 0 for gpu in (0, 1)))

    def test_a_program_that_reaches_from_one_gpu_to_the_other_finds_what_was_away(self):
        """Nothing wakes the other GPU's process: its memory is needed there only."""
        shell = self.on_gpus(2)
        for way in (("migrate", shell.pid, "--gpu", "1,0"), ("suspend", shell.pid), ("migrate", shell.pid, "--gpu", "1,0")):
            for here in (0, 1):
                self.tessera(*way)
                self.tessera("resume", shell.pid)
                self.expect_words(shell, 1 - here, on=here)

    def test_a_program_on_three_gpus_goes_round(self):
        shell = self.on_gpus(3)
        for turn in (1, 2, 3):
            self.tessera("migrate", shell.pid, "--gpu", "1,2,0")
            self.assertEqual([self.vgpu(f"v{gpu}")["gpu"] for gpu in range(3)], [(gpu + turn) % 3 for gpu in range(3)])
            if turn > 1:  # the first time most of it goes on before it has come in
                self.expect_right_on_all(shell)

    def test_a_program_on_two_gpus_takes_along_what_is_in_host_memory(self):
        shell = self.on_gpus(2)
        self.tessera("evict", "v0")
        wait_for("the eviction", lambda: self.gone_out("v0") == 64 * MIB)
        self.tessera("migrate", shell.pid, "--gpu", "1,0")
        for gpu in (0, 1):
            self.assertGreaterEqual(self.gone_out(f"v{gpu}"), 64 * MIB * (gpu + 1), "Tessera moves it, not the driver")
        self.tessera("migrate", shell.pid, "--gpu", "1,0")  # most of it has not come in
        self.expect_right_on_all(shell)

    def test_a_program_on_two_gpus_is_suspended_and_changes_their_places_meanwhile(self):
        shell = self.on_gpus(2)
        for _ in range(2):
            self.tessera("suspend", shell.pid)
            self.tessera("migrate", shell.pid, "--gpu", "1,0")
            self.assertEqual([each["suspension"] for each in self.json("ps")["processes"]], ["suspended"] * 2)
            self.tessera("resume", shell.pid)
            self.expect_right_on_all(shell)
        self.tessera("suspend", shell.pid, "--to", "file")
        wait_for("the pools to be empty", lambda: all(self.gpu(gpu)["swap"]["pool_used_bytes"] == 0 for gpu in (0, 1)))
        self.assertIn("resume it first", self.refused("migrate", shell.pid, "--gpu", "1,0"))
        self.tessera("resume", shell.pid)
        self.expect_right_on_all(shell)

    def test_what_cannot_be_is_refused_and_the_program_goes_on(self):
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)
        self.assertIn("there is no GPU 7", self.refused("migrate", "team", "--gpu", "7"))
        self.assertIn("2 are named", self.refused("migrate", "team", "--gpu", "0,1"))
        self.assertIn("there is no vGPU nobody", self.refused("migrate", "nobody", "--gpu", "1"))
        self.create("greedy", gpu="1", memory_request="900M")
        self.change("team", memory_request="300M")
        said = self.refused("migrate", "team", "--gpu", "1")
        self.assertIn("cannot promise 300 MiB", said)
        self.assertEqual(self.vgpu("team")["gpu"], 0)
        shell.ok("launch", 1)
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        dry = self.tessera("migrate", "team", "--gpu", "1", "--dry-run").stdout
        self.assertIn("would go from GPU 0 to GPU 1", dry)

    def test_memory_that_others_can_reach_is_in_the_way(self):
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        piece = shell.filled(self.SIZE, self.WORD)
        shell.ok("ipc_get", piece, 0)
        said = self.refused("migrate", "team", "--gpu", "1")
        self.assertIn("IPC", said)
        self.assertIn(str(shell.pid), said)
        self.assertEqual(shell.ok("compare", piece, self.WORD)["wrong"], 0)
        self.assertIsNone(self.process(shell.pid)["suspension"])

    def test_a_program_larger_than_its_gpu_stays_and_one_that_was_migrated_gets_no_more(self):
        self.create("team", gpu="0", memory_max="1536M")
        shell = self.shell_with_context("team")
        pieces = [shell.filled(self.SIZE, self.WORD + number) for number in range(4)]
        said = self.refused("migrate", "team", "--gpu", "1")
        self.assertIn("cannot work from host memory", said)
        self.assertIn(str(shell.pid), said)
        self.refused("migrate", "team", "--gpu", "1", "--dry-run")
        shell.ok("free", pieces.pop())
        shell.ok("free", pieces.pop())
        self.tessera("migrate", "team", "--gpu", "1")
        shell.ok("launch", 1)
        shell.ok("sync")
        self.tessera("evict", shell.pid)  # now it is known that its driver imports no host memory here
        shell.ok("launch", 1)
        shell.ok("sync")
        self.assertEqual(shell.ask("allocate", "alloc", 2 * self.SIZE)["result"], OUT_OF_MEMORY)
        for number, piece in enumerate(pieces):
            self.assertEqual(shell.ok("compare", piece, self.WORD + number)["wrong"], 0)

    def test_to_where_it_is_nothing_moves(self):
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        for words in ((), ("--dry-run",)):
            self.assertIn("vGPU team stays on GPU 0", self.tessera("migrate", "team", "--gpu", "0", *words).stdout)
        self.assertNotIn("suspended", self.daemon_log())
        shell.ok("launch", 1)

    def test_it_is_evicted_and_takes_turns_where_its_driver_imports_no_host_memory(self):
        large = 9 * CHUNK  # two of that size take turns
        self.create("team", gpu="0")
        shell = self.shell_with_context("team")
        memory = shell.filled(large, self.WORD)
        self.tessera("migrate", "team", "--gpu", 1)
        shell.ok("launch", 1)
        shell.ok("sync")
        self.tessera("evict", shell.pid)
        self.assertGreaterEqual(self.process(shell.pid)["memory_swapped_bytes"], large)
        self.assertIn("its driver cannot reach host memory", self.daemon_log())
        shell.ok("launch", 1)
        shell.ok("sync")
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        self.create("other", gpu="1")
        other = self.shell_with_context("other")
        others = other.filled(large, self.WORD + 1)
        for each, its, word in ((shell, memory, self.WORD), (other, others, self.WORD + 1)):
            each.ok("launch", 1)
            each.ok("sync")
            self.assertEqual(each.ok("compare", its, word)["wrong"], 0)
        self.tessera("migrate", "team", "--gpu", 0)
        self.assertEqual(self.process(shell.pid)["gpu"], 0)
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 4)
        self.assertEqual(other.ok("compare", others, self.WORD + 1)["wrong"], 0)


if __name__ == "__main__":
    unittest.main()
