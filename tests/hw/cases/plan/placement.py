"""A plan's placement, as `tessera plan … --json` tells it, of workloads that can be run here."""
import dataclasses
import json
import pathlib
import re

from harness.checks import Failed, expect
from harness.model_programs import MODELS, Workload

# A tenant's name begins with what it runs, as "BERT-Large-train-16"; the JSON may say it by keys of its own instead.
NAME = re.compile(r"(?P<model>" + "|".join(map(re.escape, MODELS)) + r")[-_ .](?P<mode>infer|train)[-_ .](?:bs?)?(?P<batch>\d+)",
                  re.IGNORECASE)
LAST_NUMBER = re.compile(r"[-_ .@](\d+(?:\.\d+)?)(?:pct)?$")  # "…-66.7": the target, percent of the speed alone


@dataclasses.dataclass(frozen=True)
class Placed:
    """A tenant on a GPU."""
    name: str
    workload: Workload
    target: float  # part of its speed alone
    space: str  # "" if it is in none
    sm_pct: float
    request_pct: float
    limit_pct: float

    def settings(self):
        """Fields of its vGPU. A limit of 100 is none."""
        fields = {"compute_request": self.request_pct}
        if 0 < self.limit_pct < 100:
            fields["compute_limit"] = self.limit_pct
        return fields


def _workload(tenant):
    if "model" in tenant:
        model, mode, batch = tenant["model"], tenant["mode"], tenant["batch"]
    else:
        found = NAME.match(tenant["name"])
        expect(found, f"the name of tenant {tenant['name']} does not begin with MODEL-MODE-BATCH")
        model, mode, batch = found["model"], found["mode"], found["batch"]
    model = next((each for each in MODELS if each.lower() == str(model).lower()), None)
    expect(model, f"tenant {tenant['name']}: the model is none of {', '.join(MODELS)}")
    return Workload(model, mode.lower(), int(batch))


def _target(tenant):
    if "target" in tenant:
        return float(tenant["target"])
    rest = NAME.sub("", tenant["name"], count=1)
    found = LAST_NUMBER.search(rest)
    expect(found, f"tenant {tenant['name']} has neither `target`, a part of its speed alone, nor a name that ends with -PERCENT")
    return float(found[1]) / 100


def _placed(tenant):
    placed = Placed(tenant["name"], _workload(tenant), _target(tenant), tenant.get("space") or "",
                    float(tenant.get("sm_pct") or 100), float(tenant.get("request_pct") or 0),
                    float(tenant.get("limit_pct") or 100))
    expect(0 < placed.target <= 1, f"tenant {placed.name}: a target of {placed.target} is no part of a speed")
    return placed


def read(path):
    """[[Placed]], one list for each GPU of the plan."""
    try:
        plan = json.loads(pathlib.Path(path).read_text())
        gpus = sorted(plan["gpus"], key=lambda gpu: gpu["index"])
        return [[_placed(tenant) for tenant in gpu["tenants"]] for gpu in gpus]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Failed(f"{path} is no plan's JSON: {type(error).__name__} {error}") from None
