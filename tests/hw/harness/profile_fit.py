"""What measured speeds say of a workload: its speed by SMs, its part of the memory's bandwidth, and how much programs lose
to each other beside that. Pure: numbers go in and come out. The model is that of src/plan/gpus/gpu_model.h."""
import dataclasses
import statistics


@dataclasses.dataclass
class Measured:
    """Bursts a second of one workload, and what it did to a program that only moves memory."""
    workload: object
    native: float  # on all SMs, without Tessera
    memory_mib: int
    by_sms: dict = dataclasses.field(default_factory=dict)  # percent of the SMs: alone on these
    beside_stream: float = 0  # on half of the SMs, the stream on the other half
    stream_beside: float = 0  # bytes a second of the stream then
    together: list = dataclasses.field(default_factory=list)  # (percent, rates): so many at once on so much each

    @property
    def alone(self):
        """On all SMs: the fastest that it was seen alone. No program is faster on fewer SMs, so if it was, something else
        held up the one on all of them."""
        return max(self.native, *self.by_sms.values()) if self.by_sms else self.native

    def curve(self):
        """[[part of the SMs, part of the speed]], never falling, 1 at the end."""
        points, best = [], 0
        for percent, rate in sorted(self.by_sms.items()):
            best = min(1.0, max(best, rate / self.alone))
            if best > 0:
                points.append([percent / 100, round(best, 4)])
        return [*points, [1.0, 1.0]]

    def beside(self):
        """Its speed beside as many of its kind as there is room for, against that alone on as many SMs, (0, 1]; None: not
        measured."""
        percent, rates = min(self.together, default=(0, ()))
        if not rates or not self.by_sms.get(percent):
            return None
        return min(1.0, statistics.mean(rates) / self.by_sms[percent])

    def speed(self, part):
        """By straight lines between the points, from nothing at no SMs."""
        before = [0.0, 0.0]
        for point in self.curve():
            if part <= point[0]:
                return before[1] + (point[1] - before[1]) * (part - before[0]) / (point[0] - before[0])
            before = point
        return 1.0


@dataclasses.dataclass(frozen=True)
class Stream:
    """Bytes a second of the program that only moves memory."""
    alone: float  # on all SMs
    on_half: float


def bandwidth(measured, stream):
    """The part of the memory's bandwidth at full speed, [0, 1]: what the stream lost to it, by its speed meanwhile. True
    where the stream on half of the SMs takes what others leave, as it does if it alone has nearly all."""
    if not measured.beside_stream or not stream.alone:
        return 0.0
    lost = max(0.0, stream.on_half - measured.stream_beside) / stream.alone
    return min(1.0, lost / (measured.beside_stream / measured.alone))


@dataclasses.dataclass
class Group:
    """Programs that ran at once: (workload, percent of the SMs, part of its speed alone on as many SMs) of each."""
    members: list

    def demand(self, all_measured, bandwidths):
        return sum(bandwidths[workload] * all_measured[workload].speed(percent / 100) for workload, percent, _ in self.members)

    def mean(self):
        return statistics.mean(part for _, _, part in self.members)


def groups_of(all_measured, pairs=()):
    """Of the copies of one workload that ran at once, and of `pairs`: lists of (workload, percent, rate)."""
    rows = [[(m.workload, percent, rate) for rate in rates] for m in all_measured.values() for percent, rates in m.together]
    return [Group([(workload, percent, rate / all_measured[workload].by_sms[percent]) for workload, percent, rate in row])
            for row in [*rows, *pairs]]


def space_speed(groups, all_measured, bandwidths):
    """(the part of the speed that programs have beside others when memory is not short, [0.5, 1]; how far the model is off
    for each group, as parts)."""
    limits = [min(1.0, 1 / max(group.demand(all_measured, bandwidths), 1e-9)) for group in groups]
    if not groups:
        return 1.0, []
    speed = min(1.0, max(0.5, statistics.median(group.mean() / limit for group, limit in zip(groups, limits))))
    return speed, [group.mean() / (speed * limit) - 1 for group, limit in zip(groups, limits)]


def toml(all_measured, bandwidths, head, remarks):
    """The text of profiles.toml. `head`: keys and texts at its top."""
    lines = [f"# {remark}" for remark in remarks] + [f'{key} = "{value}"' for key, value in head.items()]
    for workload, m in all_measured.items():
        points = ", ".join(f"[{sms:.2f}, {speed:.4f}]" for sms, speed in m.curve())
        lines += ["", "[[profile]]", f'model = "{workload.model}"', f'mode = "{workload.mode}"', f"batch = {workload.batch}",
                  f"rate_alone = {m.alone:.3f}", f'memory = "{m.memory_mib}M"', f"speed = [{points}]",
                  f"bandwidth = {bandwidths[workload]:.3f}"]
        if m.beside() is not None:
            lines.append(f"beside = {m.beside():.3f}")
    return "\n".join(lines) + "\n"
