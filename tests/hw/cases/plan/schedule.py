"""A part of a record of many programs, made shorter: who of them, and what each is to do. Pure but for the files."""
import csv
import dataclasses
import random

from harness.bench import MIB
from harness.checks import expect

PIECE_MIB = 64  # of tessera-tenant's memory (src/tenant/scheduled_run.h)
HEAD = ("second", "duty_pct", "memory_mib")


@dataclasses.dataclass(frozen=True)
class Sample:
    second: float
    duty_pct: float
    memory_mib: float


def read(path, begin, seconds):
    """{pod: [Sample]} of a file with the columns second, pod, duty_pct and memory_mib: those that were there all the time,
    from second 0 on."""
    pods, times = {}, set()
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            second = float(row["second"])
            if begin <= second < begin + seconds:
                times.add(second)
                pods.setdefault(row["pod"], []).append(Sample(second - begin, float(row["duty_pct"]), float(row["memory_mib"])))
    expect(len(times) > 1, f"{path} has not two samples from second {begin} on")
    first = min(times) - begin
    return {pod: [dataclasses.replace(sample, second=sample.second - first) for sample in samples]
            for pod, samples in pods.items() if len(samples) == len(times)}


def invent(count, seconds, interval, rng):
    """The same of nobody: most idle, some busy for minutes, each with a memory that changes now and then."""
    pods = {}
    for number in range(count):
        memory, busy, samples = rng.uniform(10, 40) * 1024, False, []
        for index in range(int(seconds / interval)):
            busy = rng.random() < (0.8 if busy else 0.1)
            if rng.random() < 0.05:
                memory *= rng.uniform(0.8, 1.2)
            samples.append(Sample(index * interval, rng.uniform(5, 40) if busy else 0, memory))
        pods[str(number)] = samples
    return pods


def choose(pods, count, seed):
    """So many of those that work at all, by chance."""
    working = sorted(pod for pod, samples in pods.items() if any(sample.duty_pct for sample in samples))
    expect(len(working) >= count, f"only {len(working)} programs of the record work at all; {count} are asked for")
    return {pod: pods[pod] for pod in sorted(random.Random(seed).sample(working, count))}


def shorten(pods, faster, memory):
    """Time runs so much faster; all memory together is about so many bytes at most, by one factor for all. Memory is in
    whole pieces then, as tessera-tenant takes it."""
    most = sum(max(sample.memory_mib for sample in samples) for samples in pods.values())
    factor = memory / MIB / most
    return {pod: [Sample(sample.second / faster, sample.duty_pct, PIECE_MIB * round(sample.memory_mib * factor / PIECE_MIB)) for sample in samples]
            for pod, samples in pods.items()}


def end(samples):
    """A sample lasts as long as the one before it did."""
    return samples[-1].second + (samples[-1].second - samples[-2].second)


def write_all(path, pods):
    """As the record was: one file for all."""
    rows = sorted((sample.second, pod, sample) for pod, samples in pods.items() for sample in samples)
    with open(path, "w") as file:
        file.write("second,pod,duty_pct,memory_mib\n")
        for second, pod, sample in rows:
            file.write(f"{second:.6f},{pod},{sample.duty_pct:g},{sample.memory_mib}\n")


def write_one(path, samples):
    """For tessera-tenant: the last row says when it ends."""
    with open(path, "w") as file:
        file.write(",".join(HEAD) + "\n")
        for sample in samples:
            file.write(f"{sample.second:.6f},{sample.duty_pct:g},{sample.memory_mib}\n")
        file.write(f"{end(samples):.6f},0,0\n")


def interval(samples):
    return samples[1].second - samples[0].second


def mean_duty(samples):
    """Part of the time."""
    return sum(sample.duty_pct for sample in samples) / len(samples) / 100


def spread(pods, gpus):
    """{pod: GPU}: the busiest first, each on the GPU with the least to do."""
    load, where = [0.0] * gpus, {}
    for pod in sorted(pods, key=lambda pod: -mean_duty(pods[pod])):
        where[pod] = load.index(min(load))
        load[where[pod]] += mean_duty(pods[pod])
    return where
