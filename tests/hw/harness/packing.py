"""Which programs of a mix share a GPU, and how: the part of the project's own packing (src/sched/packing) that needs no
hand-over inside a space. Pure: numbers go in, plans come out."""
import dataclasses
import fractions
import math


@dataclasses.dataclass(frozen=True)
class Program:
    kind: str
    sms: int  # percent that it fills alone
    target: fractions.Fraction  # of its speed alone


@dataclasses.dataclass(frozen=True)
class Shelf:
    """Programs side by side, in one space; one program alone is in none. Shelves of a GPU take turns."""
    programs: tuple
    speed: fractions.Fraction = fractions.Fraction(1)  # of each, beside the others, to alone

    def time_of(self, program):
        """The part of the GPU's time that keeps the target."""
        return program.target / self.speed if len(self.programs) > 1 else program.target

    @property
    def time(self):
        return max(self.time_of(program) for program in self.programs)

    @property
    def sms(self):
        return sum(program.sms for program in self.programs)


def by_time(programs):
    """Each has all SMs when it runs."""
    return [Shelf((program,)) for program in programs]


def side_by_side(programs, speed=1, level=False):
    """The longest first, then the widest, each on the first shelf that has SMs left (first fit by decreasing height, as
    HeightOnShelves of strip.cc). level: only programs of one target share a shelf, so that none of them needs a limit. A
    shelf that would save no time is given up."""
    speed = fractions.Fraction(speed).limit_denominator(1000)
    rows = []
    for program in sorted(programs, key=lambda program: (-program.target, -program.sms)):
        fits = lambda row: sum(other.sms for other in row) + program.sms <= 100  # noqa: E731
        row = next((row for row in rows if fits(row) and (not level or row[0].target == program.target)), None)
        if row is None:
            rows.append([program])
        else:
            row.append(program)
    shelves = []
    for row in rows:
        shelf = Shelf(tuple(row), speed)
        shelves += [shelf] if shelf.time < sum(program.target for program in row) else by_time(row)
    return shelves


def time_of(shelves):
    return sum((shelf.time for shelf in shelves), fractions.Fraction(0))


def _spread(shelves, count, fits_best):
    """The shelves of each of so many GPUs, the longest first; None if there is no room for one."""
    gpus = [[] for _ in range(count)]
    for shelf in sorted(shelves, key=lambda shelf: -shelf.time):
        room = [gpu for gpu in gpus if time_of(gpu) + shelf.time <= 1]
        if not room:
            return None
        (max if fits_best else min)(room, key=time_of).append(shelf)
    return gpus


def gpus_for(shelves):
    """The shelves of as few GPUs as were found: evenly loaded if so many then suffice, else each as full as can be."""
    if any(shelf.time > 1 for shelf in shelves):
        raise ValueError("a target needs more than a GPU")
    count = math.ceil(time_of(shelves))
    while True:
        for fits_best in (False, True):
            gpus = _spread(shelves, count, fits_best)
            if gpus is not None:
                return gpus
        count += 1


def errors(parts, targets):
    """How far the parts of solo speed are off their targets: the least part of a target, and means in parts of the
    targets, of all errors and of what is missing and what is too much apart."""
    off = [float(part / target) - 1 for part, target in zip(parts, targets)]
    mean = lambda row: sum(row) / len(row)  # noqa: E731
    return {"least": 1 + min(off), "error": mean([abs(each) for each in off]),
            "short": mean([max(0, -each) for each in off]), "over": mean([max(0, each) for each in off])}
