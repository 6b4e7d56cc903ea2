"""Memory of cuMemCreate, mapped at addresses that the program reserves, moves like any other: PyTorch's expandable segments, vLLM's sleep mode, the
pool of llama.cpp."""
import unittest

from swapping import SwapTest
from harness import GIB, INVALID_VALUE, MIB, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, wait_for

STEP = 20 * MIB  # of PyTorch's expandable segments


class Segments(SwapTest):
    def setUp(self):
        super().setUp()
        self.start()

    def segment(self, shell, bytes_=1 * GIB):
        return shell.ok("segment", bytes_)["id"]

    def grow(self, shell, segment, offset, bytes_, word, *shared):
        """Maps new memory there, with a word in it, and lets go of the handle."""
        handle = shell.ok("segment_create", bytes_, *shared)["id"]
        shell.ok("segment_map", handle, segment, offset)
        shell.ok("segment_fill", segment, offset, bytes_, word)
        return handle

    def expect(self, shell, segment, offset, bytes_, word):
        self.assertEqual(shell.ok("segment_check", segment, offset, bytes_, word)["wrong"], 0)

    def pinned(self, name):
        return next(process for process in self.json("ps")["processes"] if process["vgpu"] == name)["memory_pinned_by"]

    def test_segments_that_grow_and_shrink_in_two_programs_that_do_not_fit_together(self):
        shells = self.shells()
        segments = [self.segment(shell) for shell in shells]
        handles = {}
        for n, (shell, segment) in enumerate(zip(shells, segments)):
            for step in range(15):
                handles[n, step] = self.grow(shell, segment, step * STEP, STEP, 1000 * n + step, "shared")
        for _ in range(2):
            for n, (shell, segment) in enumerate(zip(shells, segments)):
                for step in range(15):
                    self.expect(shell, segment, step * STEP, STEP, 1000 * n + step)
        for name in ("v0", "v1"):
            self.assertEqual(self.pinned(name)["vmm"], 0)
        # Every second one goes, in both orders, and comes again.
        for n, (shell, segment) in enumerate(zip(shells, segments)):
            for step in range(0, 15, 2):
                if step % 4:
                    shell.ok("segment_release", handles[n, step])
                shell.ok("segment_unmap", segment, step * STEP, STEP)
                if not step % 4:
                    shell.ok("segment_release", handles[n, step])
            self.assertEqual(self.json("vgpu", "show", f"v{n}")["memory_current_bytes"], self.CONTEXT_BYTES + 7 * STEP)
            for step in range(0, 15, 2):
                self.grow(shell, segment, step * STEP, STEP, 5000 * n + step)
        for n, (shell, segment) in enumerate(zip(shells, segments)):
            for step in range(15):
                self.expect(shell, segment, step * STEP, STEP, (1000 if step % 2 else 5000) * n + step)
        for shell in shells:
            shell.end()
        wait_for("all memory to come back", lambda: not self.managed() and self.used() == 0)

    def test_evicted_by_hand_and_back(self):
        self.create("v", memory_max="1G")
        shell = self.shell_with_context("v")
        segment = self.segment(shell)
        self.grow(shell, segment, 0, 130 * MIB, 1)  # in three chunks
        self.grow(shell, segment, 130 * MIB, 2 * MIB, 2)
        self.tessera("freeze", "v")
        self.tessera("evict", "v")
        self.assertEqual(self.json("vgpu", "show", "v")["memory_resident_bytes"], self.CONTEXT_BYTES)
        self.tessera("thaw", "v")
        self.expect(shell, segment, 0, 130 * MIB, 1)
        self.expect(shell, segment, 130 * MIB, 2 * MIB, 2)

    def test_sleep_and_wake(self):
        self.create("v", memory_max="500M")
        shell = self.shell_with_context("v")
        segment = self.segment(shell, 400 * MIB)
        for word in range(3):
            handle = self.grow(shell, segment, 0, 400 * MIB, word)
            self.expect(shell, segment, 0, 400 * MIB, word)
            shell.ok("segment_unmap", segment, 0, 400 * MIB)
            shell.ok("segment_release", handle)
            # What is moved at that moment is free when its move has ended.
            wait_for("all to be free", lambda: shell.ok("info")["free"] == 500 * MIB - self.CONTEXT_BYTES)
        shell.ok("segment_free", segment, 400 * MIB)

    def test_one_that_is_larger_than_its_limit(self):
        self.create("v", memory_limit="200M", memory_max="1G")
        shell = self.shell_with_context("v")
        segment = self.segment(shell)
        self.grow(shell, segment, 0, 600 * MIB, 3)
        self.grow(shell, segment, 600 * MIB, 100 * MIB, 4)
        self.expect(shell, segment, 0, 600 * MIB, 3)
        self.expect(shell, segment, 600 * MIB, 100 * MIB, 4)
        refused = shell.ask("segment_create", 400 * MIB)
        self.assertEqual(refused["result"], OUT_OF_MEMORY)

    def test_contents_stay_with_their_handle(self):
        self.create("v", memory_max="1G")
        shell = self.shell_with_context("v")
        first, second = self.segment(shell, 200 * MIB), self.segment(shell, 200 * MIB)
        handle = self.grow(shell, first, 20 * MIB, 100 * MIB, 7)
        shell.ok("segment_unmap", first, 20 * MIB, 100 * MIB)
        shell.ok("segment_map", handle, first, 20 * MIB)  # where it was
        self.expect(shell, first, 20 * MIB, 100 * MIB, 7)
        self.assertEqual(self.pinned("v")["vmm"], 0)
        shell.ok("segment_unmap", first, 20 * MIB, 100 * MIB)
        self.tessera("freeze", "v")
        self.tessera("evict", "v")
        self.tessera("thaw", "v")
        other = self.grow(shell, first, 0, 40 * MIB, 8)  # in its place
        shell.ok("segment_map", handle, second, 0)  # elsewhere
        shell.ok("segment_map", handle, second, 100 * MIB)  # and twice
        self.expect(shell, second, 0, 100 * MIB, 7)
        shell.ok("segment_fill", second, 0, 100 * MIB, 9)
        self.expect(shell, second, 100 * MIB, 100 * MIB, 9)
        self.expect(shell, first, 0, 40 * MIB, 8)
        self.assertEqual(self.pinned("v")["vmm"], 100 * MIB, "it is the driver's now")
        shell.ok("segment_unmap", second, 0, 200 * MIB)
        shell.ok("segment_release", handle)
        self.assertEqual(self.pinned("v")["vmm"], 0)
        shell.ok("segment_free", second, 200 * MIB)
        shell.ok("segment_unmap", first, 0, 40 * MIB)
        shell.ok("segment_free", first, 200 * MIB)  # its handle is still there
        third = self.segment(shell, 40 * MIB)
        shell.ok("segment_map", other, third, 0)
        self.expect(shell, third, 0, 40 * MIB, 8)

    def test_exported_memory_stays(self):
        self.create("v", memory_max="1G")
        shell = self.shell_with_context("v")
        segment = self.segment(shell)
        handles = [self.grow(shell, segment, step * STEP, STEP, step, "shared") for step in range(5)]
        self.tessera("evict", "v")
        shell.ok("segment_export", handles[1])
        self.assertEqual(self.pinned("v")["vmm"], 0)
        self.assertEqual(self.pinned("v")["exported"], 64 * MIB, "its chunk cannot move")
        for step in range(5):
            self.expect(shell, segment, step * STEP, STEP, step)
        shell.ok("segment_export", handles[3])  # from 60 to 80 MiB: in two chunks
        self.expect(shell, segment, 3 * STEP, STEP, 3)
        shell.ok("segment_fill", segment, 3 * STEP, STEP, 33)
        self.expect(shell, segment, 2 * STEP, STEP, 2)
        self.expect(shell, segment, 3 * STEP, STEP, 33)
        large = self.grow(shell, segment, 300 * MIB, 130 * MIB, 44, "shared")
        self.expect(shell, segment, 300 * MIB, 130 * MIB, 44)
        self.tessera("evict", "v")
        shell.ok("segment_unmap", segment, 300 * MIB, 130 * MIB)
        shell.ok("segment_export", large)  # where it has contents, and is not mapped
        shell.ok("segment_map", large, segment, 500 * MIB)
        self.expect(shell, segment, 500 * MIB, 130 * MIB, 44)
        shell.ok("segment_unmap", segment, 500 * MIB, 130 * MIB)
        shell.ok("segment_release", large)
        new = shell.ok("segment_create", STEP, "shared")["id"]
        shell.ok("segment_export", new)  # never mapped
        shell.ok("segment_map", new, segment, 200 * MIB)
        shell.ok("segment_fill", segment, 200 * MIB, STEP, 9)
        self.expect(shell, segment, 200 * MIB, STEP, 9)
        shell.ok("segment_unmap", segment, 0, 220 * MIB)
        for handle in (*handles, new):
            shell.ok("segment_release", handle)
        wait_for("it to go", lambda: self.pinned("v")["exported"] + self.pinned("v")["vmm"] == 0)

    def test_what_a_program_sees(self):
        self.create("v", memory_max="1G")
        shell = self.shell_with_context("v")
        segment = self.segment(shell, 256 * MIB)
        handle = self.grow(shell, segment, 64 * MIB, 20 * MIB, 1, "shared")
        seen = shell.ok("segment_mapping", segment, 70 * MIB)
        # As on an H200, driver 580.159.04.
        self.assertEqual({key: seen[key] for key in ("failed", "base", "bytes", "start", "range", "context", "type", "handle_types", "flags", "handle")},
                         {"failed": 0, "base": 64 * MIB, "bytes": 20 * MIB, "start": 0, "range": 256 * MIB, "context": 0, "type": 2, "handle_types": 1,
                          "flags": 3, "handle": handle})
        # Mapped twice, across a multiple of 64 MiB: it cannot move any more, and lies in pieces.
        wide = self.grow(shell, segment, 100 * MIB, 60 * MIB, 2, "shared")
        seen = shell.ok("segment_mapping", segment, 150 * MIB)
        self.assertEqual((seen["base"], seen["bytes"], seen["range"], seen["flags"]), (100 * MIB, 60 * MIB, 256 * MIB, 3))
        shell.ok("segment_map", wide, segment, 180 * MIB)
        self.assertEqual(shell.ok("segment_mapping", segment, 150 * MIB), seen)
        self.expect(shell, segment, 180 * MIB, 60 * MIB, 2)
        again = shell.ok("segment_mapping", segment, 230 * MIB)
        self.assertEqual(again, seen | {"base": 180 * MIB})
        shell.ok("segment_unmap", segment, 180 * MIB, 60 * MIB)
        shell.ok("segment_unmap", segment, 100 * MIB, 60 * MIB)
        shell.ok("segment_release", wide)
        misuse = shell.ok("segment_misuse", segment, 64 * MIB)
        self.assertEqual({key: misuse[key] for key in ("free", "free_async", "ipc", "sync_memops")},
                         {"free": INVALID_VALUE, "free_async": INVALID_VALUE, "ipc": INVALID_VALUE, "sync_memops": NOT_SUPPORTED})
        self.expect(shell, segment, 64 * MIB, 20 * MIB, 1)
        for words in (("segment_unmap", segment, 64 * MIB, 10 * MIB), ("segment_map", handle, segment, 70 * MIB),
                      ("segment_map", handle, segment, 250 * MIB), ("segment_free", segment, 256 * MIB), ("segment_free", segment, 64 * MIB),
                      ("segment_create", 3 * MIB), ("segment_create", 0)):
            self.assertEqual(shell.ask(*words)["result"], INVALID_VALUE, words)
        shell.ok("segment_release", handle)
        self.assertEqual(shell.ask("segment_release", handle)["result"], INVALID_VALUE)
        shell.ok("segment_unmap", segment, 64 * MIB, 20 * MIB)
        self.assertNotEqual(shell.ask("segment_mapping", segment, 64 * MIB)["result"], SUCCESS)
        shell.ok("segment_free", segment, 256 * MIB)


class ThinSegments(SwapTest):
    """In host memory each 64 MiB of a program's addresses take 64 MiB, however little is mapped there: here eight of them have place."""
    SIZE = "512M"

    def test_who_maps_little_over_many_addresses_is_refused_and_nobody_else(self):
        self.start()
        self.create("thick", memory_max="1G")
        self.create("thin", memory_max="1G")
        thick, thin = self.shell_with_context("thick"), self.shell_with_context("thin")
        piece = thick.ok("allocate", "alloc", 300 * MIB)["id"]
        thin.ok("allocate", "alloc", 250 * MIB)
        thick.ok("set", piece, 5)
        segment, mapped = thin.ok("segment", 8 * GIB)["id"], 0
        while True:
            handle = thin.ok("segment_create", 2 * MIB)["id"]
            refused = thin.ask("segment_map", handle, segment, mapped * 64 * MIB)
            if refused["result"] != SUCCESS:
                break
            thin.ok("segment_fill", segment, mapped * 64 * MIB, 2 * MIB, mapped)
            mapped += 1
        # 70 of 582 MiB are beyond the GPU; what they leave of the slots is for six thin ones.
        self.assertEqual((refused["result"], mapped), (OUT_OF_MEMORY, 6))
        refusal = [event for event in self.api("GET", "/v1/events")[2]["events"] if event["type"] == "memory.refused"][-1]
        self.assertEqual(refusal["vgpu"], "thin")
        self.assertIn("62 MiB more of host memory would hold nothing", refusal["text"])
        thin.ok("segment_map", handle, segment, 2 * MIB)  # beside another one
        for _ in range(2):
            self.assertEqual(thick.ok("compare", piece, 5)["wrong"], 0)
            for n in range(mapped):
                self.assertEqual(thin.ok("segment_check", segment, n * 64 * MIB, 2 * MIB, n)["wrong"], 0)
        for n in range(mapped):
            thin.ok("segment_unmap", segment, n * 64 * MIB, 2 * MIB)


if __name__ == "__main__":
    unittest.main()
