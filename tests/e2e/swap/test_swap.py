"""Memory that is moved: programs that together do not fit, or alone do not, run with right results."""
import unittest

from swapping import SwapTest
from harness import GIB, INVALID_VALUE, MIB, OUT_OF_MEMORY, SOFT, SUCCESS, wait_for

NOT_FOUND = 500


class Programs(SwapTest):
    def test_two_that_do_not_fit_together_both_end_with_right_results(self):
        self.start()
        for n in range(2):
            self.create(f"v{n}", memory_max="1G")
        tenants = [self.tenant_in(f"v{n}", "--memory", "300M", "--memory-stride", "64K", "--kernel-us", "500")
                   for n in range(2)]
        for tenant in tenants:
            tenant.until("ready")
        for _ in range(3):
            for tenant in tenants:
                tenant.makes_progress()
        for tenant in tenants:
            tenant.finish()
        self.assertIn("memory is moved", self.daemon_log())
        wait_for("all memory to come back", lambda: not self.managed() and self.used() == 0)

    def test_an_allocation_waits_for_room_that_others_give(self):
        self.start()
        first, second = self.shells()
        mine = first.filled(self.PIECE, 11)
        theirs = second.filled(self.PIECE, 22)
        for _ in range(3):
            self.assertEqual(first.ok("compare", mine, 11)["wrong"], 0)
            self.assertEqual(second.ok("compare", theirs, 22)["wrong"], 0)
        first.ok("free", mine)
        second.ok("free", theirs)

    def test_one_that_is_larger_than_the_gpu_runs(self):
        self.start()
        self.create("big", memory_max="1G")
        shell = self.shell_with_context("big")
        ids = [shell.ok("allocate", "alloc", 100 * MIB)["id"] for _ in range(8)]
        for n in ids:
            shell.ok("set", n, 1000 + n)
        for n in ids:
            self.assertEqual(shell.ok("compare", n, 1000 + n)["wrong"], 0)
        shell.ok("launch", 3)
        self.assertEqual(shell.ok("count")["count"], 3)
        shell.ok("free_all")
        whole = shell.ok("allocate", "alloc", 800 * MIB)["id"]  # the same in one piece
        shell.ok("set", whole, 5)
        self.assertEqual(shell.ok("compare", whole, 5)["wrong"], 0)

    def test_what_is_freed_and_ended_comes_back(self):
        self.start()
        first, second = self.shells()
        for _ in range(3):
            for shell in (first, second):
                shell.ok("allocate", "alloc", self.PIECE)
                shell.ok("free_all")
        for shell in (first, second):
            shell.ok("allocate", "alloc", self.PIECE)
            shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_what_a_program_sees_is_the_same_wherever_its_memory_is(self):
        self.start()
        first, second = self.shells()
        mine = first.ok("allocate", "alloc", self.PIECE)["id"]
        before = first.ok("info")
        seen = [first.ok("pointer", mine, offset) for offset in (0, 4096, self.PIECE - 1)]
        for offset, pointer in zip((0, 4096, self.PIECE - 1), seen):
            self.assertEqual((pointer["base"], pointer["start"], pointer["pointer"]), (0, 0, offset))
            self.assertEqual((pointer["bytes"], pointer["range"]), (self.PIECE, self.PIECE))
            self.assertEqual((pointer["type"], pointer["ordinal"], pointer["managed"]), (2, 0, 0))
            self.assertEqual((pointer["own_context"], pointer["attributes"], pointer["attribute"]), (1, 0, 0))
        self.assertEqual(len({pointer["id"] for pointer in seen}), 1)
        theirs = second.filled(self.PIECE, 1)
        self.assertEqual([first.ok("pointer", mine, offset) for offset in (0, 4096, self.PIECE - 1)], seen)
        after = first.ok("info")
        self.assertEqual((after["total"], after["device_total"]), (GIB, GIB))
        self.assertEqual(before["total"], GIB)
        self.assertLessEqual(after["free"], GIB - self.PIECE)
        first.ok("free", mine)
        self.assertEqual(first.ok("info")["total"], GIB)

    def test_wrong_calls_get_the_drivers_answers(self):
        self.start()
        (shell,) = self.shells(1)
        self.assertEqual(shell.ask("free_address", "0x123456789000")["result"], INVALID_VALUE)
        self.assertEqual(shell.ask("free_address", 0)["result"], SUCCESS)
        self.assertEqual(shell.ask("allocate", "alloc", 0)["result"], INVALID_VALUE)
        self.assertEqual(shell.ask("allocate", "alloc", 1 << 62)["result"], OUT_OF_MEMORY)
        self.assertEqual(shell.ask("allocate", "alloc", (1 << 64) - 1)["result"], OUT_OF_MEMORY)
        piece = shell.ok("allocate", "alloc", 5 * MIB)["id"]
        self.assertEqual(shell.ask("free_inside", piece, 512)["result"], INVALID_VALUE)
        self.assertEqual(shell.ask("pointer", piece, 5 * MIB)["result"], NOT_FOUND)  # padding is nobody's
        shell.ok("set", piece, 3)
        self.assertEqual(shell.ok("compare", piece, 3)["wrong"], 0)
        shell.ok("free", piece)

    def test_what_is_freed_while_a_stream_captures_goes_later(self):
        self.start()
        (shell,) = self.shells(1)
        whole = shell.ok("info")["free"]
        for _ in range(3):
            piece = shell.ok("allocate", "alloc", 100 * MIB)["id"]
            self.assertEqual(shell.ok("free_capturing", piece)["ended"], SUCCESS)
        shell.ok("free", shell.ok("allocate", "alloc", MIB)["id"])
        self.assertEqual(shell.ok("info")["free"], whole)

    def test_a_context_that_ends_takes_its_memory_along(self):
        self.start()
        first, second = self.shells()
        first.ok("context")
        piece = first.filled(self.PIECE, 4)
        second.ok("set", second.ok("allocate", "alloc", self.PIECE)["id"], 4)  # which brings it out
        first.ok("destroy", 1)
        first.ok("current", 0)
        more = first.filled(self.PIECE, 5)
        self.assertEqual(first.ok("compare", more, 5)["wrong"], 0)

    def test_a_child_of_a_program_with_swapped_memory(self):
        self.start()
        first, second = self.shells()
        piece = first.filled(self.PIECE, 4)
        second.ok("set", second.ok("allocate", "alloc", self.PIECE)["id"], 4)
        self.assertEqual({k: v for k, v in first.ok("fork").items() if k in ("hangs", "crashed")},
                         {"hangs": 0, "crashed": 0})
        self.assertEqual(first.ok("compare", piece, 4)["wrong"], 0)

    def test_a_limit_is_kept_beside_programs_that_swap(self):
        self.start()
        self.create("promised", memory_request="220M", memory_limit="220M")
        promised = self.shell_with_context("promised")
        piece = promised.filled(150 * MIB, 9)
        first, second = self.shells()
        for shell in (first, second):
            shell.ok("set", shell.ok("allocate", "alloc", 250 * MIB)["id"], 1)
        self.assertEqual(promised.ok("compare", piece, 9)["wrong"], 0)
        self.assertEqual(promised.ask("allocate", "alloc", 100 * MIB)["result"], OUT_OF_MEMORY)


    def test_no_more_lies_in_host_memory_than_the_swap_max(self):
        self.start()
        self.create("bounded", memory_max="1G", memory_swap_max="128M")
        self.create("other", memory_max="1G")
        bounded, other = self.shell_with_context("bounded"), self.shell_with_context("other")
        mine = bounded.filled(self.PIECE, 11)
        # Memory that stays on the GPU cannot be taken by any means: a part of what is larger than the rest goes out at once.
        large = other.ok("allocate", "alloc", self.PIECE)["id"]
        self.assertGreater(self.vgpu("other")["memory_swap_current_bytes"], 0)
        other.ok("free", large)
        theirs = other.filled(250 * MIB, 22)
        for _ in range(3):
            self.assertEqual(bounded.ok("compare", mine, 11)["wrong"], 0)
            self.assertEqual(other.ok("compare", theirs, 22)["wrong"], 0)
            self.assertLessEqual(self.vgpu("bounded")["memory_swap_current_bytes"], 128 * MIB)
        self.assertGreater(self.vgpu("bounded")["moved_out_bytes"], 0)

    def test_one_that_must_not_be_swapped_stays(self):
        self.start()
        self.create("stays", memory_max="1G", memory_swap_max="0")
        self.create("other", memory_max="1G")
        stays, other = self.shell_with_context("stays"), self.shell_with_context("other")
        mine = stays.filled(self.PIECE, 11)
        ids = [other.ok("allocate", "alloc", 64 * MIB)["id"] for _ in range(4)]  # more than is left
        for n in ids:
            other.ok("set", n, 1000 + n)
        for n in ids:
            self.assertEqual(other.ok("compare", n, 1000 + n)["wrong"], 0)
        self.assertEqual(stays.ok("compare", mine, 11)["wrong"], 0)
        self.assertEqual(self.vgpu("stays")["moved_out_bytes"], 0)
        self.assertGreater(self.vgpu("other")["moved_out_bytes"], 0)


    def test_what_the_driver_does_by_itself_goes_on_in_one_that_rests(self):
        """The daemon does not see such work: a thread that waits for it would wait for good if the program were frozen."""
        self.start()
        self.create("team")
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 256 * MIB)
        shell.ok("launch", 1)
        shell.ok("sync")
        row = lambda: next(p for p in self.api("GET", "/v1/processes")[2]["processes"] if p["pid"] == shell.pid)
        wait_for("it to rest", lambda: row()["state"] == "idle")
        self.api("POST", f"/v1/processes/{shell.pid}/evict", {"to_bytes": 0})
        wait_for("its memory to go", lambda: row()["memory_swapped_bytes"] == 256 * MIB)
        wait_for("it to be thawed behind its gate", lambda: row()["frozen"] == [])
        shell.ok("load_unseen", SOFT)
        self.assertEqual(row()["memory_swapped_bytes"], 256 * MIB)
        shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 2)
        wait_for("its memory to come back", lambda: row()["memory_swapped_bytes"] == 0)


class ProgramsByGates(Programs):
    MORE = '[channels]\ncontrol = "off"\n'


    def test_nothing_is_moved_before_all_work_is_seen_to_have_ended(self):
        self.start()
        self.create("team")
        shell, other = (self.shell_with_context("team") for _ in range(2))
        shell.ok("allocate", "alloc", 256 * MIB)
        other.ok("allocate", "alloc", 192 * MIB)
        shell.ok("launch", 1)
        shell.ok("sync")
        shell.ok("begin_capture", 4_000_000)  # a second or so, and no marker is possible meanwhile

        def row(of):
            return next(p for p in self.api("GET", "/v1/processes")[2]["processes"] if p["pid"] == of.pid)

        wait_for("it to look as if it did nothing", lambda: row(shell)["state"] == "idle")
        for each in (shell, other):
            self.api("POST", f"/v1/processes/{each.pid}/evict", {"to_bytes": 0})
        wait_for("the other's memory to go", lambda: row(other)["memory_swapped_bytes"] == 192 * MIB)
        self.assertGreater(row(shell)["memory_evicting_bytes"], 0)
        self.assertEqual(row(shell)["memory_swapped_bytes"], 0)
        shell.ok("end_capture")
        wait_for("its memory to go", lambda: row(shell)["memory_swapped_bytes"] == 256 * MIB)
        self.assertEqual(shell.ok("count")["count"], 2)


class LittlePool(SwapTest):
    SIZE = "64M"

    def test_what_cannot_go_anywhere_is_refused(self):
        self.start()
        first, second = self.shells()
        mine = first.filled(self.PIECE, 11)
        self.assertEqual(second.ask("allocate", "alloc", self.PIECE)["result"], OUT_OF_MEMORY)
        self.assertEqual(first.ok("compare", mine, 11)["wrong"], 0)
        second.ok("set", second.ok("allocate", "alloc", 100 * MIB)["id"], 1)


class NoHostMemory(LittlePool):
    """Programs do not hang where the host has no memory free."""
    SIZE, FLOOR = SwapTest.SIZE, "100T"


class Churn(SwapTest):
    PROGRAMS, ROUNDS, LEAST = 4, 2600, 10_000

    def test_no_word_is_ever_wrong(self):
        self.start()
        done = [self.done(churn) for churn in self.churns(self.PROGRAMS, self.ROUNDS)]
        self.assertGreaterEqual(sum(each["rounds"] for each in done), self.LEAST)
        self.assertGreater(sum(each["replays"] for each in done), self.LEAST // 20)
        self.assertGreater(sum(each["bytes"] for each in done), 512 * MIB)  # more than the GPU has
        self.assertEqual(sum(each["refused"] for each in done), 0)
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_no_word_is_wrong_of_one_that_is_larger_than_the_gpu(self):
        self.start()
        (churn,) = self.churns(1, 600, memory_mib=900)
        self.assertGreater(self.done(churn)["bytes"], 512 * MIB)


class ChurnByGates(Churn):
    MORE = '[channels]\ncontrol = "off"\n'
    PROGRAMS, ROUNDS, LEAST = 3, 1200, 3_500


if __name__ == "__main__":
    unittest.main()
