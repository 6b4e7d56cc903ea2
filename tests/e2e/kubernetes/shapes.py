"""What the objects of resource.k8s.io/v1 consist of (1.36, staging/src/k8s.io/api/resource/v1/types.go)."""
import quantity

ANY, QUANTITY = object(), object()


class Map:
    def __init__(self, shape):
        self.shape = shape


METADATA = {
    "name": str, "generateName": str, "namespace": str, "uid": str, "resourceVersion": str, "generation": int,
    "creationTimestamp": str, "labels": Map(str), "annotations": Map(str), "managedFields": ANY,
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool,
                         "blockOwnerDeletion": bool}],
}
RANGE = {"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}
CAPACITY = {"value": QUANTITY, "requestPolicy": {"default": QUANTITY, "validValues": [QUANTITY], "validRange": RANGE}}
DEVICE = {
    "name": str, "attributes": Map({"bool": bool, "int": int, "string": str, "version": str}), "capacity": Map(CAPACITY),
    "allowMultipleAllocations": bool, "taints": [{"key": str, "value": str, "effect": str, "timeAdded": str}],
    "nodeName": str, "nodeSelector": ANY, "allNodes": bool, "consumesCounters": [ANY], "bindsToNode": bool,
    "bindingConditions": [str], "bindingFailureConditions": [str],
}
SLICE = {
    "driver": str, "pool": {"name": str, "generation": int, "resourceSliceCount": int}, "nodeName": str,
    "nodeSelector": ANY, "allNodes": bool, "perDeviceNodeSelection": bool, "sharedCounters": [ANY], "devices": [DEVICE],
}
OPAQUE = {"driver": str, "parameters": ANY}
REQUEST = {
    "deviceClassName": str, "selectors": [ANY], "allocationMode": str, "count": int, "tolerations": [ANY],
    "capacity": {"requests": Map(QUANTITY)},
}
CLAIM = {"devices": {
    "requests": [{"name": str, "exactly": {**REQUEST, "adminAccess": bool}, "firstAvailable": [{**REQUEST, "name": str}]}],
    "constraints": [{"requests": [str], "matchAttribute": str, "distinctAttribute": str}],
    "config": [{"requests": [str], "opaque": OPAQUE}],
}}
RESULT = {
    "request": str, "driver": str, "pool": str, "device": str, "shareID": str, "consumedCapacity": Map(QUANTITY),
    "adminAccess": bool, "tolerations": [ANY], "bindingConditions": [str], "bindingFailureConditions": [str],
}
CONDITION = {"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str,
             "observedGeneration": int}
CLAIM_STATUS = {
    "allocation": {
        "devices": {"results": [RESULT], "config": [{"source": str, "requests": [str], "opaque": OPAQUE}]},
        "nodeSelector": ANY, "allocationTimestamp": str,
    },
    "reservedFor": [{"apiGroup": str, "resource": str, "name": str, "uid": str}],
    "devices": [{"driver": str, "pool": str, "device": str, "shareID": str, "conditions": [CONDITION], "data": ANY,
                 "networkData": ANY}],
}


def whole(spec, status=None):
    return {"apiVersion": str, "kind": str, "metadata": METADATA, "spec": spec, **({"status": status} if status else {})}


def decoded(value, shape, path, problems):
    """The value as it is stored: nulls are left out and quantities canonical.

    What is not of the shape is a problem. The real server drops a field that it does not know, unless it is asked to be
    strict (fieldValidation=Strict); this one always is, since our driver should write none.
    """
    if shape is ANY:
        return value
    if shape is QUANTITY:
        try:
            return quantity.canonical(value)
        except ValueError as error:
            problems.append(f"{path}: {error}")
            return value
    kind = shape if isinstance(shape, type) else list if isinstance(shape, list) else dict
    if type(value) is not kind:
        problems.append(f"{path}: {value!r} is no {kind.__name__}")
        return value
    if kind is list:
        return [decoded(each, shape[0], f"{path}[{i}]", problems) for i, each in enumerate(value)]
    if kind is not dict:
        return value
    stored = {}
    for key, each in value.items():
        within = f"{path}.{key}".lstrip(".")
        inner = shape.shape if isinstance(shape, Map) else shape.get(key)
        if inner is None:
            problems.append(f'unknown field "{within}"')
        elif each is not None:
            stored[key] = decoded(each, inner, within, problems)
    return stored
