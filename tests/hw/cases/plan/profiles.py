"""What a plan needs to know of workloads: KRYPTON's sixteen, measured alone, on parts of the SMs, and beside each other."""
import datetime
import subprocess

from cases.frameworks import need
from harness import members, model_programs as models, profile_fit as fit
from harness.checks import expect
from harness.model_programs import KRYPTON, STREAM, ModelProgram, OrderFailed, Workload
from harness.steering import watched

# Percent of the SMs of programs that run alone only. Their limits fit into their space, so that none asks for its turn.
SINGLE = {"hw-p-one": (10, 20, 30, 40), "hw-p-wide": (75,)}
HALVES, QUARTERS = (50, 50), (25, 25, 25, 25)
SECONDS = 0.8  # of a window
WEIGHTS_MIB = 1400  # of the largest model
PAIRS = (("ResNet50 infer 8", "BERT-Large infer 8"), ("MobileNetV2 infer 32", "Transformer-XL infer 32"),
         ("BERT-Large infer 32", "ResNet50 train 32"), ("Transformer-XL train 8", "MobileNetV2 train 8"),
         ("BERT-Large train 8", "ResNet50 train 32"), ("BERT-Large train 16", "Transformer-XL infer 8"))


class Cast:
    """The programs, all started at once, as the import of their frameworks takes longest: one without Tessera, and the
    others in spaces in which nobody waits for SMs."""

    def __init__(self, bench, small):
        self.bench = bench
        self.native = ModelProgram(bench, bench.start_native, small)
        self.own = bench.options.get("models.sms") == "own"
        self.single = {percent: self._member(space, percent, percent, small)
                       for space, percents in SINGLE.items() for percent in percents}
        self.halves = [self._member("hw-p-two", percent, number, small) for number, percent in enumerate(HALVES)]
        self.quarters = [self._member("hw-p-four", percent, number, small) for number, percent in enumerate(QUARTERS)]
        for program in self.all():
            program.wait()

    def all(self):
        return [self.native, *self.single.values(), *self.halves, *self.quarters]

    def _member(self, space, percent, number, small):
        name = f"{space}-{number}"
        members.member(self.bench, name, space, sm_limit=percent, **({"sm_reserved": True} if self.own else {}))
        return ModelProgram(self.bench, lambda argv: self.bench.start_inside(argv, vgpu=name), small)


class Survey:
    """Measures workload after workload, and keeps what it found."""

    def __init__(self, bench):
        self.bench = bench
        self.seconds = float(bench.options.get("profiles.seconds", 0.3 if bench.soft else SECONDS))
        self.cast = Cast(bench, small=bench.soft)
        self.measured = {}
        self.pairs = []
        self.failed = []
        self.stream = None
        gpu = bench.tessera.gpu()
        # Each of the others has a context, and weights of the same model. What does not fit would be swapped.
        self.room = (gpu["memory_total_bytes"] >> 20) - len(self.cast.all()) * ((gpu["context_bytes"] >> 20)
                                                                            + (0 if bench.soft else WEIGHTS_MIB))

    def measure_stream(self):
        """Bytes a second of the program that only moves memory, on all and on half of the SMs."""
        rates = []
        for program in (self.cast.native, self.cast.halves[1]):
            told = program.prepare(STREAM)
            rates.append(models.run([program], self.seconds)[0][0] * told["bytes"])
            program.drop()
        self.stream = fit.Stream(*rates)
        self.bench.tell(f"memory moves at {rates[0] / 1e9:.0f} GB/s on all SMs, {rates[1] / 1e9:.0f} on half")

    def measure(self, workload):
        """Nothing of a workload is kept that could not be measured as a whole."""
        told, (alone,) = self._alone(self.cast.native, workload)
        found = fit.Measured(workload, alone, told["memory_mib"])
        for percent, program in self.cast.single.items():
            found.by_sms[percent] = self._alone(program, workload)[1][0]
        half, quarter = self.cast.halves, self.cast.quarters
        fit_at_once = self.room // max(found.memory_mib, 1)
        found.by_sms[HALVES[0]] = self._alone(half[0], workload, drop=False)[1][0]
        if fit_at_once >= len(half):
            half[1].prepare(workload)
            found.together.append((HALVES[0], models.run(half, self.seconds)[0]))
            half[1].drop()
        moved = half[1].prepare(STREAM)["bytes"]
        (found.beside_stream, stream), _ = models.run(half, self.seconds)
        found.stream_beside = stream * moved
        models.drop(half)
        found.by_sms[QUARTERS[0]] = self._alone(quarter[0], workload, drop=False)[1][0]
        if fit_at_once >= len(quarter):
            models.prepare(quarter[1:], [workload] * (len(quarter) - 1))
            found.together.append((QUARTERS[0], models.run(quarter, self.seconds)[0]))
        models.drop(quarter)
        self.measured[workload] = found
        self.bench.tell(_row(found, fit.bandwidth(found, self.stream)))

    def measure_pair(self, pair):
        models.prepare(self.cast.halves, pair)
        rates, _ = models.run(self.cast.halves, self.seconds)
        models.drop(self.cast.halves)
        self.pairs.append([(workload, HALVES[0], rate) for workload, rate in zip(pair, rates)])

    def _alone(self, program, workload, drop=True):
        told = program.prepare(workload)
        rates, _ = models.run([program], self.seconds)
        if drop:
            program.drop()
        return told, rates

    def attempt(self, what, measure):
        """Whether that was measured. A workload that fails is left out, and told."""
        try:
            measure()
            return True
        except OrderFailed as error:
            self.failed.append(what)
            self.bench.tell(f"{what}: not measured: {error}")
            models.drop(self.cast.all())
            return False


def _row(found, bandwidth):
    curve = " ".join(f"{percent}:{rate / found.alone:.3f}" for percent, rate in sorted(found.by_sms.items()))
    together = ", ".join(f"{len(rates)}x{percent} % " + " ".join(f"{rate / found.by_sms[percent]:.3f}" for rate in rates)
                         for percent, rates in found.together)
    return (f"{found.workload}: {found.alone:.2f}/s alone, {found.memory_mib} MiB; by SMs {curve}; of that at once "
            f"{together or 'nothing: too much memory'}; bandwidth {bandwidth:.3f}")


def _head(bench):
    if bench.soft:  # its figures are of this machine's processor, and of no GPU
        return {"gpu": "soft", "driver": "none", "date": str(datetime.date.today())}
    told = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"],
                          capture_output=True, text=True).stdout.strip()
    name, _, driver = told.partition(", ")
    return {"gpu": name or bench.tessera.gpu()["name"], "driver": driver or "unknown", "date": str(datetime.date.today())}


def _mean_off(off):
    """Percent."""
    return 100 * sum(map(abs, off)) / max(len(off), 1)


def _write(survey, whole):
    """After each workload, so that what was measured is kept if the time ends."""
    bandwidths = {workload: fit.bandwidth(m, survey.stream) for workload, m in survey.measured.items()}
    pairs = [pair for pair in survey.pairs if all(workload in survey.measured for workload, _, _ in pair)]
    groups = fit.groups_of(survey.measured, pairs)
    speed, off = fit.space_speed(groups, survey.measured, bandwidths)
    precision = survey.bench.options.get("models.precision", "half")
    remarks = ["Speeds of workloads, by tests/hw/run.py --only plan.profiles. Eager PyTorch, random weights, "
               + ("fp16 inference, training with bf16 autocast." if precision == "half" else "fp32."),
               "Transformer-XL is written anew, with the size of its paper's large model: transformers has it no more.",
               f"space_speed = {speed:.3f}; of {len(groups)} groups at once the model is off by {_mean_off(off):.1f} % on average, "
               f"{100 * max(map(abs, off), default=0):.1f} % at most"]
    remarks += [] if whole else ["NOT COMPLETE"]
    path = survey.bench.out / "profiles.toml"
    path.write_text(fit.toml(survey.measured, bandwidths, _head(survey.bench), remarks))
    return groups, speed, off


def _chosen(bench):
    wanted = bench.options.get("profiles.only", "")
    return [workload for workload in KRYPTON if wanted in str(workload)]


@watched("plan", soft=True, limit_s=560)
def profiles(bench):
    """KRYPTON's workloads: bursts a second alone, by SMs in a space, two and four of them at once, some pairs, and beside a
    program that only moves memory. Writes profiles.toml to --out. --option profiles.only=ResNet50, profiles.seconds,
    models.precision=half,single; models.sms=own: SMs of their own in place of limits. On a soft GPU the models are stand-ins
    on the processor, to try the check itself."""
    need("torch")
    if not bench.soft:
        need("transformers")
    survey = Survey(bench)
    survey.measure_stream()
    workloads = _chosen(bench)
    for workload in workloads:
        survey.attempt(str(workload), lambda: (models.build(survey.cast.all(), workload.model, workload.mode),
                                               survey.measure(workload)))
        _write(survey, False)
    known = {str(workload): workload for workload in survey.measured}
    for names in PAIRS:
        if all(name in known for name in names):
            survey.attempt(" + ".join(names), lambda: survey.measure_pair([known[name] for name in names]))
    groups, speed, off = _write(survey, not survey.failed and workloads == list(KRYPTON))
    for group, error in zip(groups, off):
        text = ", ".join(f"{workload} on {percent} % x{part:.3f}" for workload, percent, part in group.members)
        bench.log(f"at once: {text}; the model says {group.mean() / (1 + error):.3f}")
    figure = (f"{len(survey.measured)} of {len(workloads)} workloads; programs at once have {speed:.3f} of their speed, the model "
              f"is off by {_mean_off(off):.1f} % on average")
    expect(not survey.failed, f"{figure}; not measured: {', '.join(survey.failed)}")
    raw = [{"workload": str(m.workload), "alone": m.alone, "memory_mib": m.memory_mib, "by_sms": m.by_sms, "together": m.together,
            "beside_stream": m.beside_stream, "stream_beside": m.stream_beside} for m in survey.measured.values()]
    pairs = [[(str(workload), percent, rate) for workload, percent, rate in pair] for pair in survey.pairs]
    return figure, {"stream": vars(survey.stream), "workloads": raw, "pairs": pairs}
