"""What the API server demands of ResourceSlices (1.36, pkg/apis/resource/validation/validation.go).

Each function yields problems, as "spec.driver: why".
"""
import re

import quantity
from names import LABEL_NAME, driver, is_label_name, is_qualified, label, pool, repeated

NUMBER, WORD = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
VERSION = re.compile(rf"{NUMBER}\.{NUMBER}\.{NUMBER}(-{WORD}(\.{WORD})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?")
MOST_DEVICES, MOST_TAINTED_DEVICES, MOST_TAINTS, MOST_PROPERTIES, MOST_VALUES = 128, 64, 16, 32, 10
NODES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def slice_(new, old=None):
    spec = new.get("spec", {})
    yield from driver(spec, "spec")
    yield from pool(spec.get("pool", {}), "spec.pool", "name")
    if spec.get("pool", {}).get("generation", 0) < 0:
        yield "spec.pool.generation: must be greater than or equal to zero"
    if spec.get("pool", {}).get("resourceSliceCount", 0) < 1:
        yield "spec.pool.resourceSliceCount: must be greater than zero"
    if old:
        for key, before, after in (("driver", old["spec"], spec), ("pool.name", old["spec"]["pool"], spec.get("pool", {})),
                                   ("nodeName", old["spec"], spec)):
            if before.get(key.split(".")[-1]) != after.get(key.split(".")[-1]):
                yield f"spec.{key}: field is immutable"
    given = [key for key in NODES if key in spec]
    if len(given) != 1 or not spec[given[0]]:
        yield f"spec: exactly one of {', '.join(NODES)} is required, not {given}"
    devices = spec.get("devices", [])
    if "sharedCounters" in spec and "devices" in spec:
        yield "spec: only one of sharedCounters or devices is allowed"
    most = MOST_TAINTED_DEVICES if any(d.get("taints") or d.get("consumesCounters") for d in devices) else MOST_DEVICES
    if len(devices) > most:
        yield f"spec.devices: Too many: {len(devices)}: must have at most {most} items"
        return
    for name in repeated([d.get("name") for d in devices]):
        yield f"spec.devices: Duplicate value: {name!r}"
    for i, each in enumerate(devices):
        yield from device(each, f"spec.devices[{i}]", spec.get("perDeviceNodeSelection", False))


def device(self, path, has_own_node):
    yield from label(self, path, "name")
    attributes, capacity = self.get("attributes", {}), self.get("capacity", {})
    if len(attributes) + len(capacity) > MOST_PROPERTIES:
        yield f"{path}: more than {MOST_PROPERTIES} attributes and capacities"
    for name in [*attributes, *capacity]:
        if not is_qualified(name):
            yield f"{path}: {name!r} is no C identifier of at most 32 characters, nor domain/identifier"
    for name, attribute in attributes.items():
        yield from attribute_value(attribute, f"{path}.attributes[{name}]")
    for name, each in capacity.items():
        within = f"{path}.capacity[{name}]"
        if "value" not in each:
            yield f"{within}.value: Required value"
        elif "requestPolicy" in each and not self.get("allowMultipleAllocations"):
            yield f"{within}.requestPolicy: Forbidden: allowMultipleAllocations must be true"
        elif "requestPolicy" in each:
            yield from policy(each["requestPolicy"], quantity.value(each["value"]), f"{within}.requestPolicy")
    yield from taints(self.get("taints", []), f"{path}.taints")
    if not has_own_node and any(key in self for key in ("nodeName", "nodeSelector", "allNodes")):
        yield f"{path}: a device has a node of its own only if perDeviceNodeSelection is true"


def attribute_value(attribute, path):
    if len(attribute) != 1:
        yield f"{path}: exactly one value must be specified"
    for key in ("string", "version"):
        if len(attribute.get(key, "").encode()) > 64:
            yield f"{path}.{key}: Too long: may not be more than 64 bytes"
    if "version" in attribute and not VERSION.fullmatch(attribute["version"]):
        yield f"{path}.version: must be a string compatible with semver.org spec 2.0.0"


def taints(self, path):
    if len(self) > MOST_TAINTS:
        yield f"{path}: Too many: {len(self)}"
    for i, taint in enumerate(self):
        if not is_label_name(taint.get("key", "")):
            yield f"{path}[{i}].key: {taint.get('key')!r} is no label name"
        if taint.get("value") and not LABEL_NAME.fullmatch(taint["value"]):
            yield f"{path}[{i}].value: {taint['value']!r} is no label value"
        if taint.get("effect") not in ("NoSchedule", "NoExecute", "None"):
            yield f"{path}[{i}].effect: Unsupported value: {taint.get('effect')!r}"


def policy(self, capacity, path):
    """A request policy, of a capacity of this much."""
    values = [quantity.value(each) for each in self.get("validValues", [])]
    limits = {key: quantity.value(each) for key, each in self.get("validRange", {}).items()}
    if values and "validRange" in self:
        yield f"{path}: Forbidden: validValues and validRange at the same time"
        return
    if (values or "validRange" in self) and "default" not in self:
        yield f"{path}.default: Required value"
        return
    default = quantity.value(self.get("default", 0))
    if values:
        if values != sorted(set(values)) or len(values) > MOST_VALUES:
            yield f"{path}.validValues: must be at most {MOST_VALUES}, in ascending order, none of them twice"
        if max(values) > capacity:
            yield f"{path}.validValues: an option is larger than the capacity's value"
        if default not in values:
            yield f"{path}.validValues: the default is not one of them"
    elif "validRange" in self:
        yield from range_(limits, default, capacity, f"{path}.validRange")


def range_(limits, default, capacity, path):
    if "min" not in limits:
        yield f"{path}.min: Required value"
        return
    lowest, highest, step = limits["min"], limits.get("max", capacity), limits.get("step")
    if lowest > min(highest, capacity):
        yield f"{path}.min: is larger than max or the capacity's value"
    if highest > capacity:
        yield f"{path}.max: is larger than the capacity's value"
    if not lowest <= default <= limits.get("max", default):
        yield f"{path}.default: is less than min or more than max"
    if step is None:
        return
    if step <= 0:
        yield f"{path}.step: must be greater than zero"
        return
    if lowest + step > capacity:
        yield f"{path}.step: one step from min is larger than the capacity's value"
    if (default - lowest) % step:
        yield f"{path}.step: the default is no multiple of it from min"
    if "max" in limits and (highest - lowest) % step:
        yield f"{path}.step: max is no multiple of it from min"
