"""Memory limits: exact, by every way to allocate, and right after any end of a program."""
import signal
import unittest

from harness import GIB, INVALID_VALUE, MIB, OUT_OF_MEMORY, SUCCESS, SoftGpuTest, wait_for

GRANULE = 2 * MIB
KINDS = ("alloc", "pitch", "async", "pool", "array", "array3d", "physical", "mapped")


class Limit(SoftGpuTest):
    PIECES = 16  # granules of the vGPU beside one context

    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.limit = self.CONTEXT_BYTES + self.PIECES * GRANULE
        self.create("team", memory_limit=self.limit)

    def test_exact_to_the_granule_by_every_way_to_allocate(self):
        shell = self.shell_with_context("team")
        for kind in KINDS:
            with self.subTest(kind):
                got = shell.ask("fill", kind, GRANULE)
                self.assertEqual((got["result"], got["pieces"]), (OUT_OF_MEMORY, self.PIECES))
                self.assertEqual(self.current("team"), self.limit)
                shell.ok("free_all")
                self.assertEqual(self.current("team"), self.CONTEXT_BYTES)

    def test_managed_memory_beyond_it_is_the_drivers_to_migrate(self):
        shell = self.shell_with_context("team")
        piece = shell.ok("allocate", "managed", 4 * self.PIECES * GRANULE)["id"]
        self.assertEqual(self.current("team"), self.limit)
        shell.ok("set", piece, 7)
        self.assertEqual(shell.ok("compare", piece, 7)["wrong"], 0)
        shell.ok("free", piece)
        self.assertEqual(self.current("team"), self.CONTEXT_BYTES)

    def test_sizes_between_granules_are_rounded_up(self):
        shell = self.shell_with_context("team")
        self.assertEqual(shell.ask("fill", "alloc", GRANULE + 1)["pieces"], self.PIECES // 2)

    def test_small_pieces_fill_it_as_well(self):
        shell = self.shell_with_context("team")
        self.assertEqual(shell.ask("fill", "alloc", MIB)["pieces"], 2 * self.PIECES)
        self.assertEqual(self.current("team"), self.limit)

    def test_the_call_that_crosses_it_fails_and_the_program_goes_on(self):
        shell = self.shell_with_context("team")
        first = shell.ok("allocate", "alloc", self.PIECES // 2 * GRANULE)
        self.assertEqual(shell.ask("allocate", "alloc", (self.PIECES // 2 + 1) * GRANULE)["result"], OUT_OF_MEMORY)
        second = shell.ok("allocate", "alloc", self.PIECES // 2 * GRANULE)
        self.assertEqual(shell.ask("allocate", "alloc", 1)["result"], OUT_OF_MEMORY)
        shell.ok("free", first["id"])
        shell.ok("launch", 3)
        self.assertEqual(shell.ok("count")["count"], 3)
        shell.ok("free", second["id"])
        self.assertEqual(self.vgpu("team")["oom_events"], 2)

    def test_contexts_count(self):
        shell = self.shell_with_context("team")
        self.assertEqual(shell.ask("context")["result"], OUT_OF_MEMORY)
        self.change("team", memory_limit=self.limit + self.CONTEXT_BYTES)
        second = shell.ok("context")
        self.assertEqual(self.current("team"), 2 * self.CONTEXT_BYTES)
        shell.ok("destroy", second["id"])
        self.assertEqual(self.current("team"), self.CONTEXT_BYTES)

    def test_a_detached_context_is_gone(self):
        self.change("team", memory_limit=self.limit + self.CONTEXT_BYTES)
        shell = self.shell_with_context("team")
        second = shell.ok("context")
        shell.ok("allocate", "alloc", GRANULE)
        shell.ok("launch", 3)
        shell.ok("detach", second["id"])
        self.assertEqual(self.current("team"), self.CONTEXT_BYTES)
        shell.ok("current", 0)
        shell.ok("launch", 3)
        self.assertEqual(shell.ok("count")["count"], 3)

    def test_a_program_sees_its_vgpu(self):
        shell = self.shell_with_context("team")
        seen = shell.ok("info")
        self.assertEqual((seen["total"], seen["device_total"]), (self.limit, self.limit))
        self.assertEqual(seen["free"], self.PIECES * GRANULE)
        shell.ok("allocate", "alloc", 3 * GRANULE)
        self.assertEqual(shell.ok("info")["free"], (self.PIECES - 3) * GRANULE)
        self.change("team", memory_limit=self.limit + GRANULE)
        seen = shell.ok("info")
        self.assertEqual((seen["total"], seen["free"]), (self.limit + GRANULE, (self.PIECES - 2) * GRANULE))

    def test_wrong_frees_get_the_drivers_answers(self):
        shell = self.shell_with_context("team")
        before = self.current("team")
        self.assertEqual(shell.ask("free_address", "0x123456789000")["result"], INVALID_VALUE)
        self.assertEqual(shell.ask("free_address", 0)["result"], SUCCESS)
        self.assertEqual(shell.ask("allocate", "alloc", 0)["result"], INVALID_VALUE)
        self.assertEqual(self.current("team"), before)

    def test_physical_memory_lives_until_handles_and_mappings_are_gone(self):
        shell = self.shell_with_context("team")
        in_use = lambda: (self.current("team") - self.CONTEXT_BYTES) // GRANULE
        piece = shell.ok("allocate", "physical", 4 * GRANULE)["id"]
        shell.ok("map", piece)
        self.assertEqual(in_use(), 4)
        shell.ok("release", piece)
        self.assertEqual(in_use(), 4)
        shell.ok("retain", piece)
        shell.ok("unmap", piece)
        self.assertEqual(in_use(), 4)
        shell.ok("release", piece)
        self.assertEqual(in_use(), 0)

    def test_a_limit_that_changes_is_obeyed_at_once(self):
        shell = self.shell_with_context("team")
        self.assertEqual(shell.ask("fill", "alloc", GRANULE)["pieces"], self.PIECES)
        self.change("team", memory_limit=self.limit + 4 * GRANULE)
        self.assertEqual(shell.ask("fill", "alloc", GRANULE)["pieces"], 4)
        self.change("team", memory_max=self.limit)  # nothing is taken away, nothing more is given
        self.assertEqual(self.current("team"), self.limit + 4 * GRANULE)
        self.assertEqual(shell.ask("allocate", "alloc", 1)["result"], OUT_OF_MEMORY)
        self.assertEqual(shell.ok("info")["free"], 0)
        shell.ok("free_all")
        self.assertEqual(shell.ask("fill", "alloc", GRANULE)["pieces"], self.PIECES)

    def test_programs_of_one_vgpu_share_it_exactly(self):
        pieces = 128
        self.change("team", memory_limit=2 * self.CONTEXT_BYTES + pieces * GRANULE)
        first, second = self.shell_with_context("team"), self.shell_with_context("team")
        first.ok("allocate", "alloc", 512)
        vgpu = self.vgpu("team")
        unused = vgpu["memory_limit_bytes"] - vgpu["memory_current_bytes"] - vgpu["memory_available_bytes"]
        self.assertGreater(unused, GRANULE)  # is credit of the first program, which the second must get
        self.assertEqual(second.ask("fill", "alloc", GRANULE)["pieces"], pieces - 1)
        second.ok("free_all")
        second.ok("allocate", "alloc", 512)
        got = first.ask("fill", "alloc", GRANULE)["pieces"] + second.ask("fill", "alloc", GRANULE)["pieces"]
        self.assertIn(got, (pieces - 1, pieces - 2))  # the few bytes of each may take a page of the device

    def test_nothing_remains_of_a_program_that_is_killed(self):
        shell = self.shell_with_context("team")
        shell.ok("launch", 1000, 1000)
        shell.ask("fill", "mapped", GRANULE)
        shell.child.send_signal(signal.SIGKILL)
        wait_for("its memory to come back", lambda: self.current("team") == 0)
        self.assertEqual(self.shell_with_context("team").ask("fill", "alloc", GRANULE)["pieces"], self.PIECES)

    def test_nothing_remains_of_a_program_that_frees_nothing(self):
        shell = self.shell_with_context("team")
        shell.ask("fill", "alloc", GRANULE)
        shell.end()
        wait_for("its memory to come back", lambda: self.current("team") == 0)
        self.assertEqual(self.shell_with_context("team").ask("fill", "alloc", GRANULE)["pieces"], self.PIECES)


class Promise(SoftGpuTest):
    # 48 contexts of a quarter of the usual size leave room to grab.
    SPEC = "1x4GiB,context=16MiB"
    CONTEXT_BYTES = 16 * MIB
    PROGRAMS = 48

    def test_programs_that_take_all_they_can_hurt_no_promise(self):
        self.start_daemon(config='[swap]\nsize = "0"\n')  # so that there is an end to what they can take
        self.create("promised", memory_request=GIB)
        greedy = ("greedy", "greedier")
        for name in greedy:
            self.create(name)
        shells = [self.shell_in(greedy[n % 2]) for n in range(self.PROGRAMS)]
        for command in ("init", "context", "fill alloc 8388608"):
            for shell in shells:
                shell.send(command)
            answers = [shell.answer() for shell in shells]
        self.assertEqual({answer["result"] for answer in answers}, {OUT_OF_MEMORY})
        taken = sum(answer["pieces"] for answer in answers) * 8 * MIB + self.PROGRAMS * self.CONTEXT_BYTES
        self.assertTrue(3 * GIB - 8 * MIB < taken <= 3 * GIB, taken)
        self.assertEqual(sum(self.current(name) for name in greedy), taken)
        promised = self.shell_with_context("promised")
        pieces = promised.ask("fill", "alloc", GRANULE)["pieces"]
        self.assertGreaterEqual(pieces, (GIB - self.CONTEXT_BYTES) // GRANULE)
        self.assertLess(pieces, (GIB + 8 * MIB) // GRANULE)  # and what the others could not use
        for shell in shells:
            shell.child.kill()
        wait_for("all to be given back", lambda: not any(self.current(name) for name in greedy))


if __name__ == "__main__":
    unittest.main()
