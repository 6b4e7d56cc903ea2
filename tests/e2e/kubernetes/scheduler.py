"""What the scheduler does with a claim: finds devices that have enough left, and writes them into the claim's status.

Rounding and order are the real one's (1.36, dynamic-resource-allocation/structured, consumable_capacity.go). Selectors
(CEL), constraints, firstAvailable, allocationMode All and admin access are not here.
"""
import collections
import math
import uuid

import quantity


def claim_of(name, memory=None, compute=None, sm=None, swap=None, count=1, parameters=None, driver="gpu.tessera.dev",
             device_class="tessera", namespace="default"):
    """A ResourceClaim with one request, named gpu. `parameters`: those that the driver itself understands."""
    asked = {"memory": memory, "compute": compute, "sm": sm, "swap": swap}
    requests = {key: str(value) for key, value in asked.items() if value is not None}
    exactly = {"deviceClassName": device_class, "count": count, **({"capacity": {"requests": requests}} if requests else {})}
    devices_ = {"requests": [{"name": "gpu", "exactly": exactly}]}
    if parameters:
        devices_["config"] = [{"requests": ["gpu"], "opaque": {"driver": driver, "parameters": parameters}}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"devices": devices_}}


def allocate(server, claim, node, driver, pod=None, class_config=(), distinct=True):
    """The claim, which is in the API server, with its allocation; None if it does not fit.

    `pod` (a Pod; else one that does not exist) is who may use it. `class_config`: the opaque parts of the DeviceClass.
    distinct: no device twice in one request. The real scheduler does give one twice if it has enough left for both.
    """
    with server.changed:
        meta = claim["metadata"]
        claim = server.get("resourceclaims", meta["name"], meta["namespace"])
        used, taken, results = consumption(server), set(), []
        for request in claim["spec"]["devices"]["requests"]:
            exactly = wanted(request)
            given = set()
            for _ in range(exactly["count"]):
                for place, device in devices(server, node, driver):
                    consumed = None if place in taken or (distinct and place in given) else fit(device, exactly, used[place])
                    if consumed is not None:
                        break
                else:
                    return None
                given.add(place)
                used[place].append(consumed)
                if device.get("allowMultipleAllocations"):
                    share = {"shareID": str(uuid.uuid4()), **({"consumedCapacity": consumed} if consumed else {})}
                else:
                    taken.add(place)
                    share = {}
                results.append({"request": request["name"], **dict(zip(("driver", "pool", "device"), place)), **share})
        config = [{"source": "FromClass", "opaque": each} for each in class_config]
        config += [{"source": "FromClaim", **each} for each in claim["spec"]["devices"].get("config", [])]
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        claim["status"] = {**claim.get("status", {}), "reservedFor": [user(claim, pod)],
                           "allocation": {"devices": {"results": results, **({"config": config} if config else {})},
                                          "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]}}}
        return server.update("resourceclaims", claim, status=True)


def user(claim, pod):
    meta = pod["metadata"] if pod else {"name": f"{claim['metadata']['name']}-pod", "uid": str(uuid.uuid4())}
    return {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}


def wanted(request):
    exactly = request.get("exactly", {})
    if exactly.get("allocationMode") != "ExactCount" or exactly.get("selectors") or exactly.get("adminAccess"):
        raise NotImplementedError(f"this scheduler cannot allocate {request}")
    return exactly


def devices(server, node, driver):
    """((driver, pool, device), the device) on that node, of the newest generation of each pool, if that is complete."""
    pools = collections.defaultdict(list)
    for each in server.list("resourceslices", where=lambda each: each["spec"]["driver"] == driver):
        if each["spec"].get("nodeName") == node or each["spec"].get("allNodes"):
            pools[each["spec"]["pool"]["name"]].append(each["spec"])
    for pool, specs in sorted(pools.items()):
        newest = max(spec["pool"].get("generation", 0) for spec in specs)
        specs = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
        if any(spec["pool"]["resourceSliceCount"] != len(specs) for spec in specs):
            continue
        for spec in specs:
            for device in spec.get("devices", []):
                yield (driver, pool, device["name"]), device


def consumption(server):
    """What all claims that are allocated consume, by device."""
    used = collections.defaultdict(list)
    for claim in server.list("resourceclaims"):
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
            used[result["driver"], result["pool"], result["device"]].append(result.get("consumedCapacity", {}))
    return used


def fit(device, exactly, used):
    """What the request consumes of the device; None if it has not that much, or is tainted."""
    capacity, requests = device.get("capacity", {}), exactly.get("capacity", {}).get("requests", {})
    if not all(tolerated(taint, exactly.get("tolerations", [])) for taint in device.get("taints", [])):
        return None
    if set(requests) - set(capacity) or (used and not device.get("allowMultipleAllocations")):
        return None
    consumed = {}
    for name, each in capacity.items():
        consumed[name] = rounded(requests.get(name), each)
        if consumed[name] is None:
            return None
        total = sum(quantity.value(other.get(name, 0)) for other in [*used, consumed])
        if total > quantity.value(each["value"]):
            return None
    return consumed


def rounded(request, capacity):
    """What a request of that capacity consumes, as its request policy says; None if that allows none."""
    policy = capacity.get("requestPolicy", {})
    if request is None:
        return policy.get("default", capacity["value"])
    amount, limits = quantity.value(request), policy.get("validRange")
    if limits:
        lowest, step = quantity.value(limits["min"]), quantity.value(limits.get("step", 0))
        binary = quantity.parsed(limits.get("step", request))[1]
        if amount <= lowest:
            return limits["min"]
        if step:
            amount = lowest + math.ceil((amount - lowest) / step) * step
        if amount > quantity.value(limits.get("max", capacity["value"])):
            return None
        return quantity.text(amount, binary) if step else request
    if "validValues" in policy:
        return next((each for each in policy["validValues"] if quantity.value(each) >= amount), None)
    return request


def tolerated(taint, tolerations):
    if taint["effect"] == "None":
        return True
    return any(each.get("key", taint["key"]) == taint["key"] and each.get("effect", taint["effect"]) == taint["effect"]
               and (each["operator"] == "Exists" or each.get("value", "") == taint.get("value", "")) for each in tolerations)
