"""memory.request and memory.limit: nobody is refused while others' memory can move, promises are lent and kept, and a
limit that is lowered moves memory out."""
import unittest

from swapping import SwapTest
from harness import MIB, OUT_OF_MEMORY


class Newcomers(SwapTest):
    # In the proportions of 8 programs of 1,000 MiB on 4 GiB.
    SPEC = "1x512MiB,context=8MiB,pcie=4GB/s,speed=400M"
    CONTEXT_BYTES = 8 * MIB
    PROGRAMS = 8
    PIECE = 125 * MIB

    def test_as_many_as_the_pool_holds_start_run_in_turns_and_finish(self):
        self.start()
        self.create("team", memory_max="1G")
        shells = []
        for n in range(self.PROGRAMS):
            shell = self.shell_in("team" if n % 2 else self.create(f"v{n}")["name"])
            for words in (("init",), ("primary",)):
                shell.ok(*words)
            piece = shell.filled(self.PIECE, 100 + n)
            shells.append((shell, piece, 100 + n))
        for shell, piece, word in shells:
            self.assertEqual(shell.ok("compare", piece, word)["wrong"], 0)
        for shell, *_ in shells:
            shell.end()
        refused = [event for event in self.api("GET", "/v1/events")[2]["events"] if event["type"] == "memory.refused"]
        self.assertEqual(refused, [])

    def test_other_memory_that_cannot_move_waits_for_room_and_gets_it(self):
        self.start()
        first, second = self.shells()
        mine = first.filled(400 * MIB, 11)
        second.ok("allocate", "array", 200 * MIB)
        self.assertEqual(first.ok("compare", mine, 11)["wrong"], 0)  # partly from host memory
        # A refusal says what could be had.
        self.assertEqual(second.ask("allocate", "array", 300 * MIB)["result"], OUT_OF_MEMORY)
        event = [event for event in self.api("GET", "/v1/events")[2]["events"] if event["type"] == "memory.refused"][-1]
        self.assertRegex(event["text"], r"asked for 300 MiB on the GPU; at most 2\d\d MiB can be had at once: ")


class Requests(SwapTest):
    def test_a_promise_is_lent_and_taken_back(self):
        self.start()
        self.create("promised", memory_request="320M")
        self.create("other")
        promised, other = self.shell_with_context("promised"), self.shell_with_context("other")
        theirs = other.filled(400 * MIB, 22)
        mine = promised.filled(256 * MIB, 11)
        self.assertEqual(other.ok("compare", theirs, 22)["wrong"], 0)
        self.assertEqual(promised.ok("compare", mine, 11)["wrong"], 0)
        self.assertEqual(self.vgpu("promised")["moved_out_bytes"], 0)
        # What cannot be moved must leave place for it.
        self.assertEqual(other.ask("allocate", "physical", 200 * MIB)["result"], OUT_OF_MEMORY)


class Limits(SwapTest):
    def setUp(self):
        super().setUp()
        self.start()
        self.create("team")
        self.shell = self.shell_with_context("team")
        self.piece = self.shell.ok("allocate", "alloc", self.PIECE)["id"]
        self.shell.ok("set", self.piece, 11)

    def assert_limited(self, bytes_):
        vgpu = self.vgpu("team")
        self.assertLessEqual(vgpu["memory_resident_bytes"], bytes_)
        self.assertEqual(vgpu["memory_over_limit_bytes"], 0)
        self.assertEqual(vgpu["memory_max_bytes"], self.max)
        self.assertEqual(self.shell.ok("compare", self.piece, 11)["wrong"], 0)
        self.assertLessEqual(self.vgpu("team")["memory_resident_bytes"], bytes_)

    def test_a_limit_that_is_lowered_is_kept_when_the_call_returns(self):
        self.max = self.vgpu("team")["memory_max_bytes"]
        self.change("team", memory_limit="200M")
        self.assert_limited(200 * MIB)
        self.tessera("vgpu", "set", "team", "--memory", "100M")
        self.assert_limited(100 * MIB)
        self.tessera("vgpu", "set", "team", "--memory", "max")
        self.tessera("evict", "team")
        self.assertEqual(self.shell.ok("compare", self.piece, 11)["wrong"], 0)

    def test_what_cannot_go_is_an_error_with_the_reason(self):
        self.shell.ok("allocate", "physical", 100 * MIB)
        status, _, problem = self.api("PATCH", "/v1/vgpus/team", {"memory_limit": "64M"})
        self.assertEqual((status, problem["code"]), (409, "EBUSY"))
        self.assertIn("pinned", problem["detail"])
        self.assertEqual(self.vgpu("team")["memory_limit_bytes"], 64 * MIB)
        self.assertEqual(self.shell.ok("compare", self.piece, 11)["wrong"], 0)
        status, _, vgpu = self.api("PATCH", "/v1/vgpus/team?wait=false", {"memory_limit": "60M"})
        self.assertEqual(status, 200)
        self.assertGreater(vgpu["memory_over_limit_bytes"], 0)
        done = self.tessera("vgpu", "set", "team", "--memory", "50M", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pinned", done.stderr)


if __name__ == "__main__":
    unittest.main()
