"""Memory that programs share by CUDA's IPC handles, where memory is swapped."""
import os
import resource
import signal
import unittest

from swapping import SwapTest
from harness import INVALID_VALUE, MIB, OUT_OF_MEMORY, SUCCESS, wait_for

INVALID_CONTEXT = 201
CHUNK = 64 * MIB


class IpcTest(SwapTest):
    def handle(self, shell, piece, offset=0):
        return shell.ok("ipc_get", piece, offset)["handle"]

    def open(self, shell, handle):
        return shell.ok("ipc_open", handle, "cuIpcOpenMemHandle_v2")

    def refused(self, shell, handle):
        """The error of opening a handle that cannot be opened."""
        return shell.ask("ipc_open", handle, "cuIpcOpenMemHandle_v2")["result"]

    def set(self, shell, piece, word):
        """All words of it, also for others to see."""
        shell.ok("set", piece, word)
        shell.ok("sync")

    def piece(self, shell, size, word):
        piece = shell.ok("allocate", "alloc", size)["id"]
        self.set(shell, piece, word)
        return piece

    def assert_words(self, shell, piece, word):
        self.assertEqual(shell.ok("compare", piece, word)["wrong"], 0)

    def process(self, shell):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == shell.pid)
        return process


class Handles(IpcTest):
    def test_both_programs_have_the_same_memory(self):
        self.start()
        first, second = self.shells()
        for size in (100 * MIB, 5 * MIB, MIB, 4096):
            with self.subTest(size):
                mine = self.piece(first, size, 11)
                theirs = self.open(second, self.handle(first, mine))
                self.assertEqual(theirs["bytes"], size)
                self.assert_words(second, theirs["id"], 11)
                self.set(second, theirs["id"], 22)
                self.assert_words(first, mine, 22)
                self.set(first, mine, 33)
                self.assert_words(second, theirs["id"], 33)
                second.ok("free", theirs["id"])
                first.ok("free", mine)

    def test_a_handle_names_the_whole_allocation(self):
        self.start()
        (first,) = self.shells(1)
        pieces = [self.piece(first, size, 1) for size in (50 * MIB, 50 * MIB, MIB, MIB)]
        handles = [self.handle(first, piece) for piece in pieces]
        self.assertEqual(len(set(handles)), 4)
        self.assertEqual(handles, [self.handle(first, piece, MIB - 1) for piece in pieces])
        first.ok("free", pieces[0])
        again = self.piece(first, 50 * MIB, 1)
        self.assertNotIn(self.handle(first, again), handles)

    def test_opened_again_it_is_the_same_address_until_all_are_closed(self):
        self.start()
        first, second = self.shells()
        handle = self.handle(first, self.piece(first, 100 * MIB, 5))
        opened = self.open(second, handle)
        again = second.ok("ipc_open", handle, "cuIpcOpenMemHandle")
        self.assertEqual(again["address"], opened["address"])
        second.ok("ipc_close", opened["address"])
        self.assert_words(second, opened["id"], 5)
        second.ok("ipc_close", opened["address"])
        self.assertEqual(second.ask("ipc_close", opened["address"])["result"], INVALID_VALUE)
        self.assertNotEqual(second.ask("pointer", opened["id"], 0)["result"], SUCCESS)
        self.assert_words(second, self.open(second, handle)["id"], 5)

    def test_closed_while_a_stream_captures(self):
        self.start()
        first, second = self.shells()
        handle = self.handle(first, self.piece(first, 100 * MIB, 5))
        for _ in range(2):
            opened = self.open(second, handle)
            self.assertEqual(second.ok("free_capturing", opened["id"])["ended"], SUCCESS)
            self.assertEqual(second.ask("ipc_close", opened["address"])["result"], INVALID_VALUE)
        self.assert_words(second, self.open(second, handle)["id"], 5)

    def test_many_in_both_directions(self):
        self.start()
        shells = self.shells()
        for _ in range(2):
            pieces = [[self.piece(shell, (1 + n % 12) * MIB, 10 + n) for n in range(24)] for shell in shells]
            for shell, other, theirs in zip(shells, reversed(shells), reversed(pieces)):
                for n, piece in enumerate(theirs):
                    opened = self.open(shell, self.handle(other, piece))
                    self.assertEqual(opened["bytes"], (1 + n % 12) * MIB)
                    self.assert_words(shell, opened["id"], 10 + n)
            for shell in shells:
                shell.ok("free_all")
            for shell in shells:
                self.assertEqual(self.process(shell)["memory_exported_bytes"], 0)
        for shell in shells:
            shell.end()
        wait_for("all memory to come back", lambda: self.used() == 0)

    def test_what_the_program_sees_of_it(self):
        self.start()
        first, second = self.shells()
        self.piece(first, 5 * MIB, 1)  # so that the next one does not begin where its memory does
        handle = self.handle(first, self.piece(first, 40 * MIB, 5))
        before = self.process(second)
        opened = self.open(second, handle)
        for offset in (0, 4096, 40 * MIB - 1):
            seen = second.ok("pointer", opened["id"], offset)
            self.assertEqual((seen["base"], seen["start"], seen["pointer"]), (0, 0, offset))
            self.assertEqual((seen["bytes"], seen["range"]), (40 * MIB, 40 * MIB))
            self.assertEqual((seen["type"], seen["ordinal"], seen["managed"]), (2, 0, 0))
            self.assertEqual((seen["own_context"], seen["attributes"], seen["attribute"]), (1, 0, 0))
        after = self.process(second)
        for field in ("memory_bytes", "memory_resident_bytes", "memory_pinned_bytes"):
            self.assertEqual(after[field], before[field], field)  # it is the other's
        self.assertEqual(second.ask("free_address", opened["address"])["result"], INVALID_VALUE)
        self.assertEqual(second.ask("ipc_close", opened["address"] + 512)["result"], INVALID_VALUE)
        self.assertEqual(second.ask("ipc_get", opened["id"], 0)["result"], INVALID_VALUE)
        self.assert_words(second, opened["id"], 5)

    def test_a_program_cannot_open_its_own(self):
        self.start()
        (shell,) = self.shells(1)
        self.assertEqual(self.refused(shell, self.handle(shell, self.piece(shell, 40 * MIB, 1))), INVALID_CONTEXT)

    def test_handles_that_lead_nowhere(self):
        self.start()
        first, second = self.shells()
        handle = self.handle(first, self.piece(first, 40 * MIB, 1))
        self.assertEqual(self.refused(second, handle[:-66] + "00" + handle[-64:]), INVALID_VALUE)
        first.end()
        wait_for("its end", lambda: len(self.managed()) == 1)
        self.assertEqual(self.refused(second, handle), INVALID_VALUE)
        self.assertEqual(self.refused(second, "00" * 64), INVALID_VALUE)  # the driver's word
        self.assertEqual(second.ask("ipc_get", self.piece(second, MIB, 1), MIB)["result"], INVALID_VALUE)
        second.end()
        self.assertEqual(second.child.stderr.read(),
                         "tessera: there is no memory of this IPC handle; was it freed, has its program ended, or does it "
                         "run under another daemon?\n")

    def test_the_drivers_own_handles_are_the_drivers(self):
        self.start()
        self.env["TESSERA_SWAP"] = "0"
        first, second = self.shells()
        mine = self.piece(first, 40 * MIB, 11)
        theirs = self.open(second, self.handle(first, mine))["id"]
        self.set(second, theirs, 22)
        self.assert_words(first, mine, 22)
        self.assertEqual(self.process(first)["memory_exported_bytes"], 0)
        second.ok("free", theirs)

    def test_one_that_does_not_swap_opens_one_that_does(self):
        self.start()
        first, _ = self.shells()
        self.env["TESSERA_SWAP"] = "0"
        self.create("v2", memory_max="1G")
        other = self.shell_with_context("v2")
        theirs = self.open(other, self.handle(first, self.piece(first, 40 * MIB, 7)))["id"]
        self.assert_words(other, theirs, 7)

    def test_a_daemon_without_descriptors_refuses(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, 200 * MIB, 11)
        before = self.process(first)
        self.create("saved")  # answered when state.json is written: the daemon has no file open for that any more
        whole = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        used = {int(fd) for fd in os.listdir(f"/proc/{self.daemon.pid}/fd")}
        free = [fd for fd in range(len(used) + 2) if fd not in used]
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (free[1] + 1, whole[1]))  # two are free
        self.assertEqual(first.ask("ipc_get", mine, 0)["result"], OUT_OF_MEMORY)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, whole)
        after = self.process(first)
        for field in ("memory_pinned_bytes", "memory_exported_bytes"):
            self.assertEqual(after[field], before[field], field)
        self.assert_words(second, self.open(second, self.handle(first, mine))["id"], 11)
        first.end()
        self.assertIn("did not come with all of its file descriptors; raise LimitNOFILE", first.child.stderr.read())


class HandlesByGates(Handles):
    MORE = '[channels]\ncontrol = "off"\n'


class SecondGpu(IpcTest):
    SPEC = "2x512MiB,context=16MiB,pcie=4GB/s,speed=400M"

    def setUp(self):
        super().setUp()
        self.start()
        for gpu in (0, 1):
            self.create(f"v{gpu}", gpu=gpu, memory_max="256M")
        self.owner = self.shell_with_context("v0")
        self.mine = self.piece(self.owner, 20 * MIB, 11)

    def test_memory_on_a_gpu_that_the_program_has_not_used(self):
        second = self.shell_in("v0,v1")
        second.ok("init")
        second.ok("context", 1)
        theirs = self.open(second, self.handle(self.owner, self.mine))
        seen = second.ok("pointer", theirs["id"], 0)
        self.assertEqual((seen["ordinal"], seen["bytes"]), (0, 20 * MIB))
        self.assert_words(second, theirs["id"], 11)
        self.set(second, theirs["id"], 22)
        self.assert_words(self.owner, self.mine, 22)
        own = self.piece(second, 20 * MIB, 33)
        second.ok("copy", theirs["id"], own, "cuMemcpyDtoDAsync_v2")
        self.assert_words(self.owner, self.mine, 33)
        second.ok("free", theirs["id"])

    def test_without_a_vgpu_there_it_is_refused(self):
        second = self.shell_with_context("v1")
        self.assertEqual(self.refused(second, self.handle(self.owner, self.mine)), INVALID_VALUE)


class Moves(IpcTest):
    def test_what_is_exported_stays_on_the_gpu(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, 100 * MIB, 11)
        more = self.piece(first, 100 * MIB, 12)
        before = self.process(first)
        opened = self.open(second, self.handle(first, mine))["id"]
        process = self.process(first)
        self.assertEqual(process["memory_exported_bytes"], 100 * MIB)
        pinned = process["memory_pinned_bytes"] - before["memory_pinned_bytes"]
        self.assertEqual(pinned % CHUNK, 0)
        self.assertGreaterEqual(pinned, 100 * MIB)
        theirs = self.piece(second, self.PIECE, 22)
        self.assertGreater(self.process(first)["memory_swapped_bytes"], 0)
        self.tessera("evict", first.pid)
        self.assertEqual(self.process(first)["memory_pinned_bytes"], process["memory_pinned_bytes"])
        self.assert_words(second, opened, 11)
        for shell, piece, word in ((first, mine, 11), (first, more, 12), (second, theirs, 22)):
            self.assert_words(shell, piece, word)
        first.ok("free", mine)
        after = self.process(first)
        self.assertEqual((after["memory_exported_bytes"], after["memory_pinned_bytes"]),
                         (0, before["memory_pinned_bytes"]))

    def test_what_an_idle_program_has_in_host_memory_comes_back(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, 100 * MIB, 11)
        self.piece(first, 100 * MIB, 12)
        self.tessera("evict", first.pid)
        self.assertGreaterEqual(self.process(first)["memory_swapped_bytes"], 200 * MIB)
        opened = self.open(second, self.handle(first, mine))["id"]
        self.assert_words(second, opened, 11)
        self.set(second, opened, 13)
        self.assert_words(first, mine, 13)

    def test_what_made_place_for_another_program_comes_back(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, self.PIECE, 11)
        theirs = self.piece(second, self.PIECE, 22)  # which brings it out
        handle = self.handle(first, mine)
        self.assertEqual(self.process(first)["memory_exported_bytes"], self.PIECE)
        self.assert_words(second, self.open(second, handle)["id"], 11)
        self.assert_words(second, theirs, 22)
        self.assert_words(first, mine, 11)

    def test_it_comes_in_place_of_other_memory_of_one_that_is_larger_than_the_gpu(self):
        self.start()
        big, other = self.shells()
        pieces = [self.piece(big, 100 * MIB, 100 + n) for n in range(8)]
        for n in (0, 4, 7):
            opened = self.open(other, self.handle(big, pieces[n]))["id"]
            self.assert_words(other, opened, 100 + n)
        for n, piece in enumerate(pieces):
            self.assert_words(big, piece, 100 + n)

    def limited(self):
        """A program that may have 300 MiB on the GPU, and one beside it, so that host memory is made ahead of need."""
        self.create("limited", memory_limit="300M", memory_max="1G")
        limited = self.shell_with_context("limited")
        (other,) = self.shells(1)
        self.piece(other, 150 * MIB, 1)
        return limited, other

    def test_it_comes_in_place_of_other_memory_within_a_limit(self):
        self.start()
        limited, other = self.limited()
        pieces = [self.piece(limited, 64 * MIB, 100 + n) for n in range(7)]
        self.assertGreater(self.process(limited)["memory_swapped_bytes"], 0)
        for n in (0, 6):
            opened = self.open(other, self.handle(limited, pieces[n]))["id"]
            self.assert_words(other, opened, 100 + n)
        for n, piece in enumerate(pieces):
            self.assert_words(limited, piece, 100 + n)

    def test_what_can_never_have_place_is_refused(self):
        self.start()
        limited, _ = self.limited()
        pieces = [self.piece(limited, 96 * MIB, 100 + n) for n in range(5)]
        results = [limited.ask("ipc_get", piece, 0)["result"] for piece in pieces]
        self.assertEqual(sorted(results), [SUCCESS, SUCCESS, OUT_OF_MEMORY, OUT_OF_MEMORY, OUT_OF_MEMORY])
        for n, piece in enumerate(pieces):
            self.assert_words(limited, piece, 100 + n)


class MovesByGates(Moves):
    MORE = '[channels]\ncontrol = "off"\n'


class Ends(IpcTest):
    def test_freed_memory_lives_on_where_it_is_mapped_and_serves_nobody_else(self):
        self.start()
        first, second = self.shells()
        for size in (100 * MIB, MIB):
            with self.subTest(size):
                mine = self.piece(first, size, 11)
                handle = self.handle(first, mine)
                opened = self.open(second, handle)["id"]
                first.ok("free", mine)
                self.assertEqual(self.process(first)["memory_exported_bytes"], 0)
                fresh = self.piece(first, size, 33)
                self.set(second, opened, 22)
                self.assert_words(first, fresh, 33)
                self.assert_words(second, opened, 22)
                second.ok("free", opened)
                self.assertEqual(self.refused(second, handle), INVALID_VALUE)

    def test_it_outlives_its_program(self):
        for how in ("end", "kill"):
            with self.subTest(how):
                self.start()
                first, second = self.shells()
                opened = self.open(second, self.handle(first, self.piece(first, 100 * MIB, 11)))["id"]
                if how == "end":
                    first.end()
                else:
                    first.child.kill()
                    first.child.wait()
                wait_for("its end", lambda: len(self.managed()) == 1)
                self.assert_words(second, opened, 11)
                second.ok("free", opened)
                second.end()
                wait_for("all memory to come back", lambda: self.used() == 0)
            self.tearDown()
            self.setUp()

    def test_the_end_of_a_context_ends_its_handles(self):
        self.start()
        first, second = self.shells()
        for shell in (first, second):
            shell.ok("context")
        mine = self.piece(first, 100 * MIB, 11)
        handle = self.handle(first, mine)
        opened = self.open(second, handle)
        second.ok("destroy", 1)
        second.ok("current", 0)
        self.assertEqual(second.ask("ipc_close", opened["address"])["result"], INVALID_VALUE)
        self.assert_words(second, self.open(second, handle)["id"], 11)
        first.ok("destroy", 1)
        first.ok("current", 0)
        self.assertEqual(self.process(first)["memory_exported_bytes"], 0)

    def test_a_new_daemon_has_the_handles_of_the_old_one(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, 200 * MIB, 11)
        handle = self.handle(first, mine)
        opened = self.open(second, handle)["id"]
        self.stop_daemon(signal.SIGKILL)
        self.assert_words(second, opened, 11)
        self.start()
        wait_for("the exports to be told", lambda: [each["memory_exported_bytes"] for each in self.json("ps")["processes"]
                                                    if each["pid"] == first.pid] == [200 * MIB])
        self.create("third", memory_max="1G")
        third = self.shell_with_context("third")
        self.assert_words(third, self.open(third, handle)["id"], 11)
        self.assertEqual(self.handle(first, mine), handle)
        first.ok("free", mine)
        self.assertEqual(self.process(first)["memory_exported_bytes"], 0)

    def test_a_child_of_a_program_with_shared_memory(self):
        self.start()
        first, second = self.shells()
        mine = self.piece(first, 100 * MIB, 11)
        opened = self.open(second, self.handle(first, mine))["id"]
        for shell in (first, second):
            self.assertEqual({k: v for k, v in shell.ok("fork").items() if k in ("hangs", "crashed")},
                             {"hangs": 0, "crashed": 0})
        self.set(second, opened, 12)
        self.assert_words(first, mine, 12)


if __name__ == "__main__":
    unittest.main()
