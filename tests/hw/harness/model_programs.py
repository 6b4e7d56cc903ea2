"""Programs that work in bursts of real models (frameworks/model_bursts.py), and how fast they are, alone and at once."""
import dataclasses
import json
import sys
import time

from harness.build import HERE
from harness.checks import Failed

SCRIPT = HERE / "frameworks" / "model_bursts.py"
MODELS = ("ResNet50", "MobileNetV2", "BERT-Large", "Transformer-XL")
LEAD_S = 0.15  # from an order to the window in which bursts are counted
LEAST_BURSTS = 3  # in the window of the slowest
START_S = 180  # of the frameworks' import, from a cold disk


@dataclasses.dataclass(frozen=True)
class Workload:
    model: str
    mode: str  # infer, train
    batch: int

    def __str__(self):
        return f"{self.model} {self.mode} {self.batch}"


# Table 2 of KRYPTON (USENIX ATC 2025): names and sizes of batches.
KRYPTON = tuple(Workload(model, mode, batch) for model in MODELS for mode in ("infer", "train")
                for batch in ((8, 16) if (model, mode) == ("BERT-Large", "train") else (8, 32)))
STREAM = Workload("Stream", "infer", 1)


class OrderFailed(Exception):
    """A program could not do what it was told. The others go on."""


class ModelProgram:
    """One such program. `start` makes it run: bench.start_native, or one that starts it in a vGPU."""

    def __init__(self, bench, start, small=False):
        self._bench = bench
        how = ["--small", "--device", "cpu"] if small else []
        how += ["--precision", bench.options.get("models.precision", "half")]
        self._program = start([sys.executable, SCRIPT, *how])
        self.burst_s = 0
        self.pid = None

    def wait(self):
        """Until it takes orders."""
        while self._bench.line(self._program, START_S) != "ready":
            pass
        return self

    def say(self, *words):
        self._program.say(" ".join(map(str, words)))

    def hear(self, limit_s=60):
        line = self._bench.line(self._program, limit_s)
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"{self._program.name()} said {line[:200]}") from None
        if "error" in answer:
            raise OrderFailed(answer["error"])
        return answer

    def prepare(self, workload):
        """Bytes and so on that it tells."""
        return prepare([self], [workload])[0]

    def drop(self):
        self.say("drop")
        self.hear()

    def end(self):
        self._program.kill()


def _hear_all(programs):
    """All answers are read before an error is told, so that the next order meets the next answer."""
    answers, wrong = [], None
    for program in programs:
        try:
            answers.append(program.hear())
        except OrderFailed as error:
            wrong = wrong or error
    if wrong:
        raise wrong
    return answers


def build(programs, model, mode):
    for program in programs:
        program.say("build", model, mode)
    _hear_all(programs)


def prepare(programs, workloads):
    for program, workload in zip(programs, workloads):
        program.say("prepare", workload.model, workload.mode, workload.batch)
    answers = _hear_all(programs)
    for program, answer in zip(programs, answers):
        program.burst_s = answer["burst_s"]
    return answers


def drop(programs):
    for program in programs:
        program.say("drop")
    _hear_all(programs)


def run(programs, seconds, lead_s=LEAD_S):
    """They work at the same time: (bursts a second of each, their answers). All work in all of the window."""
    begin = time.monotonic() + lead_s
    end = begin + max(seconds, LEAST_BURSTS * max(program.burst_s for program in programs))
    for program in programs:
        program.say("run", f"{begin:.6f}", f"{end:.6f}")
    answers = _hear_all(programs)
    return [answer["bursts"] / (end - begin) for answer in answers], answers
