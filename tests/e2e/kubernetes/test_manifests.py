"""The manifests of deploy/kubernetes: that their parts fit together and to the programs, and that the examples' claims work."""
import copy
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, SoftGpuTest, free_port  # noqa: E402
import manifests  # noqa: E402
import quantity  # noqa: E402
import driver_test  # noqa: E402
from names import is_label_name, is_subdomain  # noqa: E402
from scheduler import allocate  # noqa: E402

SOURCE = manifests.FOLDER.parents[1]
IMAGE = SOURCE / "deploy" / "image" / "root"
EXAMPLES = sorted(path for path in (manifests.FOLDER / "examples").glob("*.yaml") if path.name != "prometheus-adapter.yaml")
COMPONENTS = ((), ("monitoring",), ("device-plugin",), ("device-plugin", "monitoring"), ("host-daemon",), ("soft",))
ACCOUNT = "system:serviceaccount:tessera:tessera"
# On the machine and in the containers at the same place, because what pods are given is named by it.
SAME = ("/run/tessera", "/var/run/cdi", "/var/lib/kubelet/plugins/gpu.tessera.dev", "/var/lib/kubelet/plugins_registry")


def containers_of(objects):
    """With those that only begin."""
    pod = manifests.one(objects, "DaemonSet")["spec"]["template"]["spec"]
    return [*pod["containers"], *pod["initContainers"]]


def flags_of(container):
    return {word.partition("=")[0] for word in [*container["command"], *container.get("args", [])] if word.startswith("--")}


def for_all(test):
    """Runs a test with the objects of each choice of components."""
    @functools.wraps(test)
    def run(self):
        for components in COMPONENTS:
            with self.subTest(components):
                test(self, manifests.build(*components))
    return run


class Base(unittest.TestCase):
    @for_all
    def test_names_are_valid_and_unique(self, objects):
        places = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
        self.assertEqual(len(set(places)), len(places))
        for each in objects:
            self.assertTrue(is_subdomain(each["metadata"]["name"]), each)
            self.assertIn(each["metadata"].get("namespace", "tessera"), ("tessera",))

    @for_all
    def test_programs_have_the_flags_that_they_are_given(self, objects):
        for container in containers_of(objects):
            program = container["command"][0]
            if program == "tessera-node":
                self.assertTrue(os.access(IMAGE / "usr/local/bin" / program, os.X_OK))
                self.assertEqual(flags_of(container), set())
                continue
            commands = [word for word in container.get("args", []) if not word.startswith("-")]
            known = subprocess.run([BIN / program, *commands, "--help"], capture_output=True, text=True, check=True).stdout
            for flag in flags_of(container):
                self.assertRegex(known, rf"(?m)^\s*(-\w, )?{flag}\b")

    @for_all
    def test_mounts_have_volumes_and_pods_find_what_they_are_given(self, objects):
        volumes = {each["name"]: each for each in manifests.one(objects, "DaemonSet")["spec"]["template"]["spec"]["volumes"]}
        maps = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
        for container in containers_of(objects):
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            self.assertEqual(len(set(paths)), len(paths))
            for mount in container["volumeMounts"]:
                volume = volumes[mount["name"]]
                if mount["mountPath"] in SAME:
                    self.assertEqual(volume["hostPath"]["path"], mount["mountPath"])
                self.assertIn(volume.get("configMap", {}).get("name"), {None, *maps})
        (driver,) = [each for each in containers_of(objects) if each["name"] == "tessera-kubelet"]
        self.assertLessEqual(set(SAME), {mount["mountPath"] for mount in driver["volumeMounts"]})

    @for_all
    def test_only_tesserad_is_privileged(self, objects):
        for container in containers_of(objects):
            rights = container["securityContext"]
            self.assertTrue(rights["readOnlyRootFilesystem"])
            if container["command"] == ["tessera-node"]:
                self.assertTrue(rights["privileged"])
            else:
                self.assertNotIn("privileged", rights)
                self.assertEqual((rights["allowPrivilegeEscalation"], rights["capabilities"]), (False, {"drop": ["ALL"]}))

    @for_all
    def test_rights_are_of_the_account_and_policies_are_for_it(self, objects):
        account = manifests.one(objects, "ServiceAccount")["metadata"]
        self.assertEqual(f"system:serviceaccount:{account['namespace']}:{account['name']}", ACCOUNT)
        self.assertEqual(manifests.one(objects, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"], account["name"])
        policies = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"}
        bound = [each["spec"]["policyName"] for each in objects if each["kind"] == "ValidatingAdmissionPolicyBinding"]
        self.assertEqual(sorted(bound), sorted(policies))
        for policy in policies.values():
            (condition,) = policy["spec"]["matchConditions"]
            self.assertEqual(condition["expression"], f'request.userInfo.username == "{ACCOUNT}"')
            self.assertEqual(policy["spec"]["failurePolicy"], "Fail")

    def test_writes_that_reach_other_nodes_are_behind_a_policy(self):
        """What the account may write beside the status of claims, which the API server binds to the node itself."""
        for components, guarded in (((), {"resourceslices"}), (("device-plugin",), {"resourceslices", "nodes/status"})):
            objects = manifests.build(*components)
            writable = {resource for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]
                        for resource in rule["resources"] if set(rule["verbs"]) - {"get", "list", "watch"}}
            self.assertEqual(writable - {"resourceclaims/status", "resourceclaims/driver"}, guarded)
            policed = {resource for each in objects if each["kind"] == "ValidatingAdmissionPolicy"
                       for rule in each["spec"]["matchConstraints"]["resourceRules"] for resource in rule["resources"]}
            if not components:  # without DRA there are no slices to be written
                self.assertLessEqual(guarded, policed)
            else:
                self.assertIn("nodes/status", policed)

    def test_the_classes_are_of_the_driver_and_names_differ_from_the_plugins(self):
        classes = {each["metadata"]["name"]: each["spec"] for each in manifests.build() if each["kind"] == "DeviceClass"}
        self.assertEqual(set(classes), {"tessera", "tessera-gpu"})
        for spec in classes.values():
            self.assertEqual(spec["selectors"], [{"cel": {"expression": f'device.driver == "{driver_test.DRIVER}"'}}])
        names = [spec["extendedResourceName"] for spec in classes.values() if "extendedResourceName" in spec]
        self.assertEqual(names, ["tessera.dev/gpu"])
        self.assertNotIn("tessera.dev/vgpu", names)

    def test_prometheus_finds_the_port(self):
        objects = manifests.build("monitoring")
        (endpoint,) = manifests.one(objects, "ServiceMonitor")["spec"]["endpoints"]
        service = manifests.one(objects, "Service")
        (port,) = service["spec"]["ports"]
        (of_container,) = containers_of(objects)[0]["ports"]
        self.assertEqual((endpoint["port"], port["targetPort"], port["port"]),
                         (port["name"], of_container["name"], of_container["containerPort"]))
        self.assertEqual(manifests.one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        (rule,) = manifests.one(objects, "NetworkPolicy")["spec"]["ingress"]
        self.assertEqual(rule["ports"], [{"protocol": "TCP", "port": port["port"]}])
        (listens,) = re.findall(r'listen = "0.0.0.0:(\d+)"', manifests.one(objects, "ConfigMap")["data"]["tesserad.toml"])
        self.assertEqual(int(listens), port["port"])


class Configuration(SoftGpuTest):
    def test_tesserad_takes_it(self):
        for components in ((), ("monitoring",)):
            text = manifests.one(manifests.build(*components), "ConfigMap")["data"]["tesserad.toml"]
            token = self.run_dir / "token"
            token.touch(0o600)
            token.write_text("a-token-of-enough-letters\n")
            text = re.sub(r'"0.0.0.0:\d+"', f'"127.0.0.1:{free_port()}"', text).replace("/etc/tessera-token/token", str(token))
            self.start_daemon(config=text)
            self.assertFalse((self.run_dir / "fs").is_mount())
            self.stop_daemon()
            self.assertEqual(self.daemon.returncode, 0, self.daemon_log())


class Node(unittest.TestCase):
    """tessera-node, with programs in place of those that it starts."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "bin").mkdir()
        for name in ("tesserad", "tessera-kubelet", "ldconfig", "setpriv"):
            program = self.folder / "bin" / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >>"$SAID"\n' + (
                'while [ "$1" != tesserad ]; do shift; done; exec "$@"\n' if name == "setpriv" else "")
                + ('echo "groups $TESSERA_LASTING_GROUPS" >>"$SAID"\n' if name == "tesserad" else ""))
            program.chmod(0o755)

    def run_node(self, *words, **variables):
        said = self.folder / "said"
        said.unlink(missing_ok=True)
        env = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "SAID": str(said), **{key: str(value) for key, value in variables.items()}}
        subprocess.run([IMAGE / "usr/local/bin/tessera-node", *words], env=env, check=True, timeout=30)
        return [line.strip() for line in said.read_text().splitlines()]

    def test_it_links_the_driver_and_starts_tesserad_with_the_units_rights(self):
        said = self.run_node("--log-level", "debug", HOST_ROOT="/host")
        self.assertEqual(said[:2], ["tessera-kubelet --host-root /host --link-driver /usr/local/nvidia",
                                    "ldconfig -X -C /usr/local/nvidia/ld.so.cache"])
        self.assertEqual(said[3:], ["tesserad --log-level debug", "groups"])
        (never,) = re.findall(r"--no-new-privs --bounding-set=(\S+) tesserad", said[2])
        unit = (SOURCE / "deploy/tesserad.service").read_text()
        wanted = {word for line in re.findall(r"CapabilityBoundingSet=~(.*)", unit) for word in line.split()}
        self.assertEqual({f"CAP_{word.removeprefix('-').upper()}" for word in never.split(",")}, wanted)

    def test_it_is_a_good_script(self):
        scripts = (IMAGE / "usr/local/bin/tessera-node", SOURCE / "tools/image.sh")
        checked = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_without_a_driver_it_links_none(self):
        self.assertEqual(self.run_node("--soft")[1:], ["tesserad --soft", "groups"])

    def test_control_groups_of_both_versions(self):
        two = self.folder / "two"
        two.mkdir()
        (two / "cgroup.controllers").touch()
        self.assertEqual(self.run_node(HOST_CGROUPS=two)[-1], f"groups {two}/tessera")
        self.assertTrue((two / "tessera").is_dir())
        one = self.folder / "one"
        for controller in ("cpuset", "memory", "pids"):
            (one / controller).mkdir(parents=True)
        (one / "cpuset" / "cpuset.cpus").touch()
        self.assertEqual(self.run_node(HOST_CGROUPS=one)[-1], f"groups {one}/cpuset:{one}/memory/tessera:{one}/pids/tessera")
        self.assertFalse((one / "cpuset" / "tessera").exists())

    def test_the_linkers_cache_lies_where_the_root_is_not_read_only(self):
        self.assertEqual(os.readlink(IMAGE / "etc/ld.so.cache"), "/usr/local/nvidia/ld.so.cache")
        self.assertEqual((IMAGE / "etc/ld.so.conf.d/nvidia.conf").read_text(), "/usr/local/nvidia/lib64\n")


def templates(objects):
    return [each for each in objects if each["kind"] == "ResourceClaimTemplate"]


def claim_from(template, name, divisor=1):
    """A claim as the cluster makes it for a pod; of a `divisor`-th of the memory, and less to swap."""
    spec = copy.deepcopy(template["spec"]["spec"])
    for request in spec["devices"]["requests"]:
        amounts = request["exactly"]["capacity"]["requests"]
        for key, part in (("memory", divisor), ("swap", 8 * divisor)):  # this machine may have little memory of its own
            if key in amounts:
                amounts[key] = str(quantity.value(amounts[key]) // part)
    return {"metadata": {"name": name, "namespace": template["metadata"].get("namespace", "default")}, "spec": spec}


class Examples(unittest.TestCase):
    def test_claims_are_those_of_the_file_and_containers_name_them(self):
        for path in EXAMPLES:
            objects = manifests.documents(path)
            for each in objects:
                self.assertTrue(is_subdomain(each["metadata"]["name"]), path)
                pod = each.get("spec", {}).get("template", {}).get("spec", each["spec"] if each["kind"] == "Pod" else None)
                if pod is None or "containers" not in pod:
                    continue
                known = {template["metadata"]["name"] for template in templates(objects)}
                claims = {claim["name"]: claim["resourceClaimTemplateName"] for claim in pod.get("resourceClaims", [])}
                self.assertLessEqual(set(claims.values()), known, path)
                named = {claim["name"] for container in pod["containers"] for claim in container["resources"].get("claims", [])}
                self.assertEqual(named, set(claims), path)
                extended = {key for container in pod["containers"] for key in container["resources"].get("limits", {})}
                self.assertLessEqual(extended, {"tessera.dev/gpu"}, path)
                if "selector" in each["spec"]:
                    self.assertEqual(each["spec"]["selector"]["matchLabels"], each["spec"]["template"]["metadata"]["labels"])

    def test_quotas_are_of_classes_that_there_are(self):
        objects = [*manifests.build(), *manifests.documents(manifests.FOLDER / "examples/four-teams.yaml")]
        classes = {each["metadata"]["name"] for each in objects if each["kind"] == "DeviceClass"}
        spaces = {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"} - {"tessera"}
        quotas = [each for each in objects if each["kind"] == "ResourceQuota"]
        self.assertEqual({each["metadata"]["namespace"] for each in quotas}, spaces)
        for each in quotas:
            self.assertEqual(set(each["spec"]["hard"]), {f"{name}.deviceclass.resource.k8s.io/devices" for name in classes})
        bindings = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicyBinding" and "matchResources" in each["spec"]]
        self.assertEqual(len(bindings), 2)
        for binding in bindings:
            labels = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
            for name in spaces:
                self.assertEqual(manifests.one(objects, "Namespace", name)["metadata"]["labels"], labels)

    def test_the_autoscaler_reads_a_metric_that_there_is(self):
        scaler = manifests.one(manifests.documents(manifests.FOLDER / "examples/autoscaling.yaml"), "HorizontalPodAutoscaler")
        (metric,) = scaler["spec"]["metrics"]
        ((rule,),) = [each["rules"] for each in manifests.documents(manifests.FOLDER / "examples/prometheus-adapter.yaml")]
        self.assertEqual(metric["pods"]["metric"]["name"], rule["name"]["as"])
        known = set(re.findall(r"^\| `(tessera_\w+)`", (SOURCE / "docs/reference/metrics.md").read_text(), re.MULTILINE))
        asked = set(re.findall(r"tessera_vgpu_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
        self.assertEqual(len(asked), 2)
        self.assertLessEqual(asked, known)
        objects = manifests.documents(manifests.FOLDER / "examples/llm-and-batch.yaml")
        target = scaler["spec"]["scaleTargetRef"]
        self.assertEqual(manifests.one(objects, target["kind"])["metadata"]["name"], target["name"])
        ((goal,),) = [[config["opaque"]["parameters"]["goal"] for config in each["spec"]["spec"]["devices"]["config"]]
                      for each in templates(objects) if each["metadata"]["name"] == "llm"]
        seconds = int(re.fullmatch(r"p99=(\d+)ms", goal)[1]) / 1000
        self.assertAlmostEqual(int(metric["pods"]["target"]["averageValue"].removesuffix("m")) / 1000, 0.8 * seconds)


class Claims(driver_test.DriverTest):
    """The claims of the examples, a 32nd of their memory, on soft GPUs of 4.4 GiB in place of 141."""
    DIVISOR = 32
    SPEC = "2x4512MiB"

    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.start_driver()
        self.wait_for_slice()

    def prepared(self, template, count=1, class_config=()):
        """How many of so many claims the scheduler finds room for; the driver prepares them."""
        made = []
        for i in range(count):
            claim = self.server.create("resourceclaims", claim_from(template, f"{template['metadata']['name']}-{i}", self.DIVISOR))
            claim = allocate(self.server, claim, driver_test.NODE, driver_test.DRIVER, class_config=class_config)
            if claim:
                self.assertEqual(self.prepare(claim).error, "")
                made.append(claim)
        return made

    def examples(self, name):
        return manifests.documents(manifests.FOLDER / "examples" / name)

    def test_llm_and_batch_are_on_one_gpu(self):
        llm, batch = templates(self.examples("llm-and-batch.yaml"))
        (one,), (other,) = self.prepared(llm), self.prepared(batch)
        vgpus = {vgpu["name"].split(".")[1]: vgpu for vgpu in self.vgpus().values()}
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in vgpus.values()}), 1)
        self.assertEqual((vgpus["llm-0"]["goal"], vgpus["batch-0"]["compute_weight"]), ("p99=20ms", 50))
        self.assertGreater(vgpus["batch-0"]["memory_max_bytes"], vgpus["batch-0"]["memory_limit_bytes"])
        for claim in (one, other):
            self.unprepare(claim)

    def test_ten_notebooks_are_on_one_gpu(self):
        (notebook,) = templates(self.examples("notebooks.yaml"))
        made = self.prepared(notebook, 10)
        self.assertEqual(len(made), 10)
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in self.vgpus().values()}), 1)

    def test_a_gang_has_two_gpus(self):
        (two,) = templates(self.examples("gang.yaml"))
        self.assertIn({"distinctAttribute": f"{driver_test.DRIVER}/uuid"}, two["spec"]["spec"]["devices"]["constraints"])
        self.assertEqual(len(self.prepared(two)), 1)
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in self.vgpus().values()}), 2)

    def test_four_teams_of_four_fit(self):
        objects = self.examples("four-teams.yaml")
        (small,) = templates(objects)
        config = [each["opaque"] for each in manifests.one(objects, "DeviceClass")["spec"]["config"]]
        made = []
        for team in "abcd":
            small["metadata"]["namespace"] = f"team-{team}"
            made += self.prepared(small, 4, config)
        self.assertEqual(len(made), 16)
        vgpus = self.vgpus().values()
        self.assertEqual(len({vgpu["gpu_uuid"] for vgpu in vgpus}), 1)
        self.assertEqual({vgpu["compute_limit_pct"] for vgpu in vgpus}, {50})


if __name__ == "__main__":
    unittest.main()
