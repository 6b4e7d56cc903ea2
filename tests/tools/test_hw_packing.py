"""tests/hw/harness/packing.py: how many GPUs a mix needs."""
import fractions
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hw"))
from harness import packing  # noqa: E402

F = fractions.Fraction
HALVES = (F(2, 3), F(1, 2), F(1, 3), F(1, 6), F(1, 12))
TENTHS = (F(1, 2), F(1, 4), F(1, 6), F(1, 8), F(1, 10))


def mix(targets, widths=(25, 50, 75, 100)):
    return [packing.Program(f"{sms}", sms, target) for sms in widths for target in targets]


def programs_of(gpus):
    return sorted(((program.kind, program.target) for gpu in gpus for shelf in gpu for program in shelf.programs))


class Packing(unittest.TestCase):
    def test_time_alone_is_arithmetic(self):
        for targets, least in ((HALVES, 7), (TENTHS, 5)):
            self.assertEqual(len(packing.gpus_for(packing.by_time(mix(targets)))), least)

    def test_programs_side_by_side_need_the_longest(self):
        wide, narrow = packing.Program("wide", 75, F(1, 2)), packing.Program("narrow", 25, F(1, 4))
        shelf, = packing.side_by_side([narrow, wide])
        self.assertEqual((shelf.time, shelf.sms), (F(1, 2), 100))
        self.assertEqual(packing.time_of(packing.side_by_side([wide, wide])), 1)

    def test_a_slower_neighbour_costs_time(self):
        pair = [packing.Program("half", 50, F(1, 2))] * 2
        self.assertEqual(packing.side_by_side(pair, F(4, 5))[0].time, F(5, 8))
        self.assertEqual(len(packing.side_by_side(pair, F(1, 2))), 2)  # no gain: each alone
        self.assertEqual(packing.side_by_side(pair[:1], F(1, 2))[0].time, F(1, 2))

    def test_spaces_need_fewer(self):
        for targets, level, least in ((HALVES, True, 6), (HALVES, False, 5), (TENTHS, True, 4), (TENTHS, False, 4)):
            self.assertEqual(len(packing.gpus_for(packing.side_by_side(mix(targets), level=level))), least)

    def test_level_shelves_have_one_target(self):
        for shelf in packing.side_by_side(mix(HALVES), level=True):
            self.assertEqual({program.target for program in shelf.programs}, {shelf.time})

    def test_every_program_has_its_time_once(self):
        for programs in (mix(HALVES), mix(TENTHS), mix(HALVES, (10, 30, 60)), mix((F(1),))):
            for shelves in (packing.by_time(programs), packing.side_by_side(programs, 0.97)):
                gpus = packing.gpus_for(shelves) if all(shelf.time <= 1 for shelf in shelves) else [shelves]
                self.assertEqual(programs_of(gpus), sorted((program.kind, program.target) for program in programs))
                self.assertTrue(all(packing.time_of(gpu) <= 1 for gpu in gpus) or len(gpus) == 1)
                self.assertTrue(all(shelf.sms <= 100 for gpu in gpus for shelf in gpu))

    def test_full_gpus_where_an_even_load_does_not_fit(self):
        targets = (F(1, 2), F(1, 2), F(1, 3), F(1, 3), F(1, 3))
        gpus = packing.gpus_for(packing.by_time([packing.Program("a", 100, target) for target in targets]))
        self.assertEqual([packing.time_of(gpu) for gpu in gpus], [1, 1])

    def test_a_target_beyond_a_gpu(self):
        with self.assertRaises(ValueError):
            packing.gpus_for(packing.by_time([packing.Program("a", 100, F(3, 2))]))

    def test_errors(self):
        row = packing.errors([0.51, 0.24], [F(1, 2), F(1, 4)])
        self.assertAlmostEqual(row["least"], 0.96)
        self.assertAlmostEqual(row["error"], 0.03)
        self.assertAlmostEqual(row["short"], 0.02)
        self.assertAlmostEqual(row["over"], 0.01)


if __name__ == "__main__":
    unittest.main()
