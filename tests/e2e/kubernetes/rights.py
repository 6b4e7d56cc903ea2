"""What a service account may do, by the ClusterRoles that are bound to it (RBAC of 1.36)."""
from objects import ApiError

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Rights:
    def __init__(self, objects, namespace="tessera", name="tessera"):
        """`objects`: all that was applied, as dicts."""
        who = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        bound = [each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding" and who in each["subjects"]]
        self.user = f"system:serviceaccount:{namespace}:{name}"
        self.rules = [rule for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound
                      for rule in each["rules"]]

    def allow(self, verb, group, resource, name=""):
        return any(verb in rule["verbs"] and group in rule["apiGroups"] and resource in rule["resources"]
                   and ("resourceNames" not in rule or name in rule["resourceNames"]) for rule in self.rules)

    def check(self, method, group, resource, name, status, query, body):
        """An error where the request is not allowed. Who writes what a driver says needs the right to do so for that
        driver, too (resourceclaims/driver)."""
        verb = VERBS.get(method) or ("get" if name else "watch" if query.get("watch") in ("1", "true") else "list")
        whole = f"{resource}/status" if status else resource
        self._demand(verb, group, whole, name or "")
        if whole == "resourceclaims/status":
            for driver in {each.get("driver", "") for each in body.get("status", {}).get("devices", [])}:
                self._demand(f"associated-node:{verb}", group, "resourceclaims/driver", driver)

    def _demand(self, verb, group, resource, name):
        if not self.allow(verb, group, resource, name):
            raise ApiError(403, f'{resource} "{name}" is forbidden: User "{self.user}" cannot {verb} resource "{resource}" '
                                f'in API group "{group}" at the cluster scope')
