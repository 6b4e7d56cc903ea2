"""What the API server demands of ResourceClaims (1.36, pkg/apis/resource/validation/validation.go).

Each function yields problems, as "spec.devices: why".
"""
import datetime
import re
import uuid

from names import driver, is_label_name, is_subdomain, label, named, pool, repeated

REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
MOST_REQUESTS, LONGEST_PARAMETERS = 32, 10 * 1024


def is_uid(text):
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def is_time(text):
    try:
        return bool(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo)
    except ValueError:
        return False


def claim(new, old=None):
    if old:
        if new.get("spec") != old.get("spec"):
            yield "spec: field is immutable"
        return
    devices = new.get("spec", {}).get("devices", {})
    requests = devices.get("requests", [])
    names = [request.get("name") for request in requests]
    if len(requests) > MOST_REQUESTS or repeated(names):
        yield f"spec.devices.requests: must be at most {MOST_REQUESTS}, with a name of its own each"
    for i, request in enumerate(requests):
        path = f"spec.devices.requests[{i}]"
        yield from label(request, path, "name")
        if len({"exactly", "firstAvailable"} & set(request)) != 1:
            yield f"{path}: exactly one of exactly or firstAvailable is required"
        elif "exactly" in request:
            yield from named(request["exactly"], f"{path}.exactly", "deviceClassName", is_subdomain)
            if request["exactly"].get("count", 1) < 1:
                yield f"{path}.exactly.count: must be greater than zero"
    for i, config in enumerate(devices.get("config", [])):
        yield from configuration(config, names, f"spec.devices.config[{i}]")


def configuration(self, names, path):
    if not set(self.get("requests", [])) <= set(names):
        yield f"{path}.requests: must be names of requests in the claim"
    if "opaque" not in self:
        yield f"{path}.opaque: Required value"
        return
    yield from driver(self["opaque"], f"{path}.opaque")
    parameters = self["opaque"].get("parameters")
    if not isinstance(parameters, dict) or len(str(parameters)) > LONGEST_PARAMETERS:
        yield f"{path}.opaque.parameters: must be a JSON object of at most {LONGEST_PARAMETERS} bytes"


def claim_status(new, old):
    status, names = new.get("status", {}), [r["name"] for r in new["spec"].get("devices", {}).get("requests", [])]
    allocation, before = status.get("allocation"), old.get("status", {}).get("allocation")
    if allocation and before and allocation != before:
        yield "status.allocation: field is immutable"
    if status.get("reservedFor") and not allocation:
        yield "status.reservedFor: Forbidden: may not be specified when `allocation` is not set"
    users = status.get("reservedFor", [])
    complete = all(user.get(key) for user in users for key in ("resource", "name", "uid"))
    if not complete or repeated([user["uid"] for user in users]):
        yield "status.reservedFor: each has a resource, a name and a uid of its own"
    results = (allocation or {}).get("devices", {}).get("results", [])
    for i, result in enumerate(results):
        path = f"status.allocation.devices.results[{i}]"
        if result.get("request", "").split("/")[0] not in names:
            yield f"{path}.request: must be the name of a request in the claim"
        yield from allocated_device(result, path)
    for i, config in enumerate((allocation or {}).get("devices", {}).get("config", [])):
        path = f"status.allocation.devices.config[{i}]"
        if config.get("source") not in ("FromClass", "FromClaim"):
            yield f"{path}.source: Unsupported value: {config.get('source')!r}"
        yield from configuration(config, names, path)
    yield from device_statuses(status.get("devices", []), [identity(result) for result in results])


def identity(self):
    return tuple(self.get(key) for key in ("driver", "pool", "device", "shareID"))


def allocated_device(self, path):
    yield from driver(self, path)
    yield from pool(self, path, "pool")
    yield from label(self, path, "device")
    if "shareID" in self and not is_uid(self["shareID"]):
        yield f"{path}.shareID: {self['shareID']!r} is no lower-case UUID"


def device_statuses(self, allocated):
    for name in repeated([identity(each) for each in self]):
        yield f"status.devices: Duplicate value: {name}"
    for i, each in enumerate(self):
        path = f"status.devices[{i}]"
        yield from allocated_device(each, path)
        if identity(each) not in allocated:
            yield f"{path}: must be an allocated device in the claim"
        if "data" in each and not isinstance(each["data"], dict):
            yield f"{path}.data: must be a JSON object"
        for kind in repeated([condition.get("type") for condition in each.get("conditions", [])]):
            yield f"{path}.conditions: Duplicate value: {kind!r}"
        for j, each_condition in enumerate(each.get("conditions", [])):
            yield from condition(each_condition, f"{path}.conditions[{j}]")


def condition(self, path):
    if not is_label_name(self.get("type", "")):
        yield f"{path}.type: {self.get('type')!r} is no label name"
    if self.get("status") not in ("True", "False", "Unknown"):
        yield f"{path}.status: Unsupported value: {self.get('status')!r}"
    if not is_time(self.get("lastTransitionTime", "")):
        yield f"{path}.lastTransitionTime: {self.get('lastTransitionTime')!r} is no time with a zone"
    if not REASON.fullmatch(self.get("reason", "")) or len(self["reason"]) > 1024:
        yield f"{path}.reason: {self.get('reason')!r} is no word such as MyReason"
    if len(self.get("message", "")) > 32768:
        yield f"{path}.message: Too long"
    if self.get("observedGeneration", 0) < 0:
        yield f"{path}.observedGeneration: must be greater than or equal to zero"
