"""What the API server keeps: objects, their versions, and what has changed."""
import collections
import copy
import datetime
import random
import threading
import uuid

import claim_rules
import names
import shapes
import slice_rules

CORE, DRA = "v1", "resource.k8s.io/v1"
Kind = collections.namedtuple("Kind", "name group namespaced has_status fields shape check")
KINDS = {
    "resourceclaims": Kind("ResourceClaim", DRA, True, True, (), shapes.whole(shapes.CLAIM, shapes.CLAIM_STATUS),
                           claim_rules.claim),
    "resourceslices": Kind("ResourceSlice", DRA, False, False, ("spec.nodeName", "spec.driver"), shapes.whole(shapes.SLICE),
                           slice_rules.slice_),
    "nodes": Kind("Node", CORE, False, True, (), shapes.whole(shapes.ANY, shapes.ANY), None),
    "pods": Kind("Pod", CORE, True, True, ("spec.nodeName", "status.phase"), shapes.whole(shapes.ANY, shapes.ANY), None),
}
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
           409: "Conflict", 410: "Expired", 411: "LengthRequired", 415: "UnsupportedMediaType", 422: "Invalid",
           429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
Change = collections.namedtuple("Change", "version resource before after")


class ApiError(Exception):
    """What is answered instead of an object."""

    def __init__(self, code, message, reason=None, causes=()):
        super().__init__(f"{code} {message}")
        self.code, self.message, self.reason, self.causes = code, message, reason or REASONS.get(code, "Unknown"), causes

    def status(self):
        details = {"causes": [{"field": c.split(": ")[0], "message": c.partition(": ")[2]} for c in self.causes]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": self.reason,
                "code": self.code, "message": self.message, "details": details}


def kind_of(resource):
    if resource not in KINDS:
        raise ApiError(404, "the server could not find the requested resource")
    return KINDS[resource]


def merged(old, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Objects:
    """Every method may be called by any thread. Objects are handed out as copies; `changed` is notified at each change."""

    def __init__(self):
        self.changed = threading.Condition()  # guards all below
        self.version = 1000                   # of the newest change
        self.horizon = 0                      # changes of up to here are forgotten
        self.kept = {}                        # by (resource, namespace, name)
        self.changes = []

    def get(self, resource, name, namespace=None):
        return copy.deepcopy(self._found(resource, namespace, name))

    def list(self, resource, namespace=None, where=lambda each: True):
        """In the order of their names. No namespace: all."""
        with self.changed:
            return copy.deepcopy([each for (kind, place, _), each in sorted(self.kept.items(), key=lambda item: item[0])
                                  if kind == resource and namespace in (None, place) and where(each)])

    def create(self, resource, new):
        kind = kind_of(resource)
        new = self._decoded(kind, new)
        meta = new.setdefault("metadata", {})
        if kind.has_status and kind.group == DRA:
            new.pop("status", None)
        with self.changed:
            if "generateName" in meta and "name" not in meta:
                meta["name"] = meta["generateName"] + "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            namespace = meta.setdefault("namespace", "default") if kind.namespaced else ""
            self._defaults(resource, new)
            self._check(kind, new, kind.check)
            key = (resource, namespace, meta["name"])
            if key in self.kept:
                raise ApiError(409, f'{resource} "{key[2]}" already exists', "AlreadyExists")
            meta.update(uid=str(uuid.uuid4()), creationTimestamp=now())
            if resource == "resourceslices":
                meta["generation"] = 1
            return self._keep(key, None, new)

    def update(self, resource, new, status=False):
        """PUT of the object, or of its status alone."""
        kind = kind_of(resource)
        new = self._decoded(kind, new)
        meta = new.setdefault("metadata", {})
        with self.changed:
            old = self._found(resource, meta.get("namespace"), meta.get("name", ""))
            held = old["metadata"]
            for key, what in (("uid", "UID"), ("resourceVersion", "version")):
                if meta.get(key, held[key]) != held[key]:
                    raise ApiError(409, f'Operation cannot be fulfilled on {resource} "{held["name"]}": the object has been '
                                        f'modified; please apply your changes to the latest version ({what} is {held[key]})')
            if status:
                new = {**{key: value for key, value in old.items() if key != "status"},
                       **({"status": new["status"]} if new.get("status") else {})}
            else:
                fixed = ("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion")
                new["metadata"] = {**meta, **{key: held[key] for key in fixed if key in held}}
                if kind.has_status:
                    new.pop("status", None)
                    new.update({"status": old["status"]} if "status" in old else {})
            if status and resource == "resourceclaims":
                self._check(kind, new, claim_rules.claim_status, old)
            elif not status:
                self._defaults(resource, new)
                self._check(kind, new, kind.check, old)
            if new == old:
                return copy.deepcopy(old)  # which is no change
            if resource == "resourceslices" and new["spec"] != old["spec"]:
                new["metadata"]["generation"] = held["generation"] + 1
            return self._keep((resource, held.get("namespace", ""), held["name"]), old, copy.deepcopy(new))

    def patch(self, resource, name, patch, namespace=None, status=False):
        with self.changed:
            return self.update(resource, merged(self.get(resource, name, namespace), patch), status)

    def delete(self, resource, name, namespace=None, preconditions=None):
        with self.changed:
            old = self._found(resource, namespace, name)
            for key, wanted in (preconditions or {}).items():
                if old["metadata"][key] != wanted:
                    raise ApiError(409, f"Precondition failed: {key} in precondition: {wanted}, in object meta: "
                                        f"{old['metadata'][key]}")
            self._keep((resource, old["metadata"].get("namespace", ""), name), old, None)
            return copy.deepcopy(old)

    def forget_changes(self):
        """No watch can begin from a version before this one."""
        with self.changed:
            self.horizon = self.version
            self.changes.clear()

    def events(self, resource, namespace, where, since):
        """What a watch is told of the changes after this version. `where`: which objects it has chosen."""
        def chosen(each):
            return each and namespace in (None, each["metadata"].get("namespace", "")) and where(each)

        for change in self.changes:
            was, is_ = chosen(change.before), chosen(change.after)
            if change.version <= since or change.resource != resource or not (was or is_):
                continue
            seen = change.after or change.before
            if not is_:
                seen = merged(change.before, {"metadata": {"resourceVersion": str(change.version)}})
            yield {"type": ("MODIFIED" if was else "ADDED") if is_ else "DELETED", "object": seen}

    # ---- with `changed` held ----

    def _found(self, resource, namespace, name):
        kind = kind_of(resource)
        with self.changed:
            place = (namespace or "default") if kind.namespaced else ""
            if (resource, place, name) not in self.kept:
                raise ApiError(404, f'{resource} "{name}" not found')
            return self.kept[resource, place, name]

    def _keep(self, key, old, new):
        self.version += 1
        if new is None:
            del self.kept[key]
        else:
            new["metadata"]["resourceVersion"] = str(self.version)
            self.kept[key] = new
        self.changes.append(Change(self.version, key[0], old, new))
        self.changed.notify_all()
        return copy.deepcopy(new)

    # ---- what it must be like ----

    @staticmethod
    def _decoded(kind, new):
        problems = []
        if new.get("kind", kind.name) != kind.name or new.get("apiVersion", kind.group) != kind.group:
            problems.append(f"{new.get('apiVersion')} {new.get('kind')} is no {kind.group} {kind.name}")
        new = shapes.decoded(new, kind.shape, "", problems)
        if problems:
            raise ApiError(400, f'{kind.name} in version "v1" cannot be handled: strict decoding error: {", ".join(problems)}')
        return {**copy.deepcopy(new), "apiVersion": kind.group, "kind": kind.name}

    @staticmethod
    def _defaults(resource, new):
        if resource == "resourceclaims":
            for request in new.get("spec", {}).get("devices", {}).get("requests", []):
                exactly = request.get("exactly", {})
                if exactly.setdefault("allocationMode", "ExactCount") == "ExactCount":
                    exactly.setdefault("count", 1)

    @staticmethod
    def _check(kind, new, rule, old=None):
        problems = [*names.metadata(new["metadata"]), *(rule(new, old) if rule else ())]
        if problems:
            raise ApiError(422, f'{kind.name} "{new["metadata"].get("name", "")}" is invalid: {", ".join(problems)}',
                           causes=problems)
