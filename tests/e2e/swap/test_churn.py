"""Programs with memory of every kind at once, which is moved by hand."""
import unittest

from swapping import SwapTest
from harness import MIB, wait_for


class Kinds(SwapTest):
    ROUNDS = 700

    def evict_all(self):
        """What can be moved of every program, at once; returns when it has gone."""
        for process in self.managed():
            self.api("POST", f"/v1/processes/{process['pid']}/evict", {"to_bytes": 0})
        wait_for("it to go", lambda: not any(process["memory_evicting_bytes"] for process in self.managed()))

    def test_no_word_is_wrong_in_memory_of_any_kind(self):
        self.start()
        churns = self.churns(2, self.ROUNDS, memory_mib=180, kinds="all")
        wait_for("both to have memory", lambda: len([p for p in self.managed() if p["memory_bytes"] > 60 * MIB]) == 2)
        for _ in range(5):
            self.evict_all()
        done = [self.done(churn) for churn in churns]
        for what in ("replays", "replays_with_memory", "reshaped", "shared"):
            self.assertGreater(sum(each[what] for each in done), 0, what)
        wait_for("all memory to come back", lambda: not self.managed() and self.used() == 0)


if __name__ == "__main__":
    unittest.main()
