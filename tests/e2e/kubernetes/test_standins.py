"""The stand-ins of Kubernetes themselves: the API server, the scheduler and the kubelet that the driver's tests use."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import ssl
import tempfile
import threading
import unittest

import quantity
from api_server import ApiServer
from kubelet import Kubelet, KubeletError
from messages import DRA, REGISTRATION, dra, grpc, handlers, registration
from objects import ApiError
from scheduler import allocate, claim_of

DRIVER, NODE = "gpu.tessera.dev", "node-1"
CLAIMS, SLICES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", "/apis/resource.k8s.io/v1/resourceslices"
DEADLINE_S = 20


def capacity(value, default, lowest, step):
    return {"value": value, "requestPolicy": {"default": default, "validRange": {"min": lowest, "max": value, "step": step}}}


def gpu(name, memory="141Gi"):
    return {"name": name, "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": f"GPU-{name}"}, "driver": {"version": "580.159.4"}},
            "capacity": {"memory": capacity(memory, "10Gi", "1Gi", "1Gi"), "compute": capacity("100", "10", "1", "1")}}


def slice_of(*devices, name="node-1-gpus", **pool):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": NODE, "devices": list(devices),
                     "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1, **pool}}}


class Client:
    """A connection to the API server, and a token as it was when the client began."""

    def __init__(self, server):
        self.context = ssl.create_default_context(cafile=str(server.ca_file))
        self.token = server.token_file.read_text()
        self.http = http.client.HTTPSConnection("localhost", server.port, context=self.context, timeout=DEADLINE_S)

    def begin(self, method, path, body=None, form="application/json"):
        self.http.request(method, path, json.dumps(body) if body is not None else None,
                          {"Authorization": f"Bearer {self.token}", "Content-Type": form})
        return self.http.getresponse()

    def ask(self, *request, **options):
        response = self.begin(*request, **options)
        return response.status, json.loads(response.read())

    def close(self):
        self.http.close()


class ServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.server = ApiServer(self.folder / "api").start()
        self.addCleanup(self.server.close)

    def client(self):
        client = Client(self.server)
        self.addCleanup(client.close)
        return client

    def ask(self, *request, **options):
        return self.client().ask(*request, **options)


class Api(ServerTest):
    def test_an_object_from_its_making_to_its_end(self):
        status, made = self.ask("POST", SLICES, slice_of(gpu("gpu-0", "1024Gi")))
        self.assertEqual(status, 201)
        self.assertEqual(made["spec"]["devices"][0]["capacity"]["memory"]["value"], "1Ti")
        self.assertTrue(made["metadata"]["uid"] and made["metadata"]["creationTimestamp"])
        self.assertEqual(self.ask("GET", f"{SLICES}/node-1-gpus"), (200, made))
        status, problem = self.ask("POST", SLICES, slice_of(gpu("gpu-0")))
        self.assertEqual((status, problem["kind"], problem["reason"]), (409, "Status", "AlreadyExists"))
        made["spec"]["pool"]["generation"] = 2
        status, changed = self.ask("PUT", f"{SLICES}/node-1-gpus", made)
        self.assertEqual((status, changed["metadata"]["generation"]), (200, 2))
        self.assertEqual(self.ask("PUT", f"{SLICES}/node-1-gpus", changed), (200, changed))  # which is no change
        status, problem = self.ask("PUT", f"{SLICES}/node-1-gpus", made)
        self.assertEqual((status, problem["reason"]), (409, "Conflict"))
        patch = {"metadata": {"labels": {"a": "b"}}}
        self.assertEqual(self.ask("PATCH", f"{SLICES}/node-1-gpus", patch)[0], 415)
        status, patched = self.ask("PATCH", f"{SLICES}/node-1-gpus", patch, form="application/merge-patch+json")
        self.assertEqual((status, patched["metadata"]["labels"]), (200, {"a": "b"}))
        stale = {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        self.assertEqual(self.ask("DELETE", f"{SLICES}/node-1-gpus", stale)[0], 409)
        self.assertEqual(self.ask("DELETE", f"{SLICES}/node-1-gpus")[1]["status"], "Success")
        for request in (("GET", f"{SLICES}/node-1-gpus"), ("PUT", f"{SLICES}/node-1-gpus", made), ("GET", "/api/v1/secrets")):
            self.assertEqual(self.ask(*request)[1]["reason"], "NotFound")

    def test_applying_makes_what_is_missing(self):
        form = "application/apply-patch+yaml"
        self.assertEqual(self.ask("PATCH", f"{SLICES}/a", slice_of(name="a"), form=form)[0], 400)
        path = f"{SLICES}/a?fieldManager=tessera"
        self.assertEqual(self.ask("PATCH", path, slice_of(name="a"), form=form)[0], 201)
        self.assertEqual(self.ask("PATCH", path, slice_of(gpu("gpu-0"), name="a"), form=form)[0], 200)

    def test_lists_are_of_what_is_chosen(self):
        client = self.client()
        for name, node in (("a", "node-1"), ("b", "node-2")):
            self.server.create("pods", {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"nodeName": node}})
            self.server.create("nodes", {"metadata": {"name": node}})

        def names(path):
            status, answer = client.ask("GET", path)
            self.assertEqual((status, answer["metadata"]["resourceVersion"]), (200, str(self.server.version)))
            return [each["metadata"]["name"] for each in answer["items"]]

        self.assertEqual(names("/api/v1/pods"), ["a", "b"])
        self.assertEqual(names("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2"), ["b"])
        self.assertEqual(names("/api/v1/namespaces/default/pods?labelSelector=app%3Da"), ["a"])
        self.assertEqual(names("/api/v1/namespaces/other/pods"), [])
        self.assertEqual(client.ask("GET", "/api/v1/nodes/node-1")[1]["kind"], "Node")
        self.assertEqual(client.ask("GET", "/api/v1/pods?fieldSelector=spec.color%3Dred")[0], 400)

    def test_a_status_is_written_by_itself(self):
        status, claim = self.ask("POST", CLAIMS, {**claim_of("x", memory="1Gi"), "status": {"reservedFor": []}})
        self.assertEqual((status, "status" in claim), (201, False))
        self.server.create("resourceslices", slice_of(gpu("gpu-0")))
        claim = allocate(self.server, claim, NODE, DRIVER)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        device = {key: result[key] for key in ("driver", "pool", "device", "shareID")}
        ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "",
                 "lastTransitionTime": "2026-11-26T00:00:00Z"}
        claim["status"]["devices"] = [{**device, "conditions": [ready]}]
        status, written = self.ask("PUT", f"{CLAIMS}/x/status", claim)
        self.assertEqual((status, written["status"]), (200, claim["status"]))
        status, kept = self.ask("PUT", f"{CLAIMS}/x", {key: written[key] for key in ("metadata", "spec")})
        self.assertEqual((status, kept["status"]), (200, claim["status"]))
        written["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        self.assertEqual(self.ask("PUT", f"{CLAIMS}/x", written)[0], 422)
        for wrong in ({"driver": ""}, {"device": "gpu-1"}, {"conditions": [{"type": "Ready"}]}, {"conditions": [ready, ready]},
                      {"conditions": [{**ready, "reason": "not a word"}]}):
            with self.subTest(wrong):
                patch = {"status": {"devices": [{**device, **wrong}]}}
                status, problem = self.ask("PATCH", f"{CLAIMS}/x/status", patch, form="application/merge-patch+json")
                self.assertEqual((status, problem["reason"]), (422, "Invalid"))
                self.assertIn("status.devices", problem["message"])

    def test_slices_that_are_not_valid(self):
        odd = gpu("gpu-0")
        odd["capacity"]["memory"] = capacity("141Gi", "1536Mi", "1Gi", "1Gi")
        undecided = gpu("gpu-0")
        del undecided["capacity"]["memory"]["requestPolicy"]["default"]
        single = {**gpu("gpu-0"), "allowMultipleAllocations": False}
        empty = gpu("gpu-0")
        empty["capacity"]["memory"] = capacity("0", "0", "0", "1Gi")
        for why, broken in {
                "spec.driver": {**slice_of()["spec"], "driver": "No Name"},
                "resourceSliceCount": slice_of(resourceSliceCount=0)["spec"],
                "exactly one of nodeName": {**slice_of()["spec"], "allNodes": True},
                "at most 128": slice_of(*({"name": f"gpu-{i}"} for i in range(129)))["spec"],
                "Duplicate": slice_of(gpu("gpu-0"), gpu("gpu-0"))["spec"],
                "devices[0].name": slice_of({"name": "GPU_0"})["spec"],
                "64 bytes": slice_of({"name": "a", "attributes": {"b": {"string": "c" * 65}}})["spec"],
                "exactly one value": slice_of({"name": "a", "attributes": {"b": {"int": 1, "bool": True}}})["spec"],
                "semver": slice_of({"name": "a", "attributes": {"b": {"version": "580.159.04"}}})["spec"],
                "C identifier": slice_of({"name": "a", "attributes": {"b-c": {"int": 1}}})["spec"],
                "validRange.step": slice_of(odd)["spec"],
                "one step": slice_of(empty)["spec"],
                "default: Required": slice_of(undecided)["spec"],
                "allowMultipleAllocations": slice_of(single)["spec"]}.items():
            with self.subTest(why):
                status, problem = self.ask("POST", SLICES, {"metadata": {"name": "a"}, "spec": broken})
                self.assertEqual((status, problem["reason"]), (422, "Invalid"))
                self.assertIn(why, problem["message"])
        for device in ({"name": "a", "colour": "red"}, {"name": "a", "capacity": {"b": {"value": "10 GiB"}}}, {"name": 1}):
            with self.subTest(device):
                self.assertEqual(self.ask("POST", SLICES, slice_of(device))[0], 400)
        self.assertEqual(self.server.list("resourceslices"), [])

    def test_an_expired_token(self):
        client = self.client()
        self.assertEqual(client.ask("GET", SLICES)[0], 200)
        self.server.expire_token()
        status, problem = client.ask("GET", SLICES)
        self.assertEqual((status, problem["reason"]), (401, "Unauthorized"))
        client.token = self.server.token_file.read_text()
        self.assertEqual(client.ask("GET", SLICES)[0], 200)

    def test_failures_that_are_asked_for(self):
        client = self.client()
        self.server.fail_next(2, 503, method="POST")
        self.assertEqual(client.ask("GET", SLICES)[0], 200)
        self.assertEqual([client.ask("POST", SLICES, slice_of())[0] for _ in range(3)], [503, 503, 201])
        self.assertEqual([request.code for request in self.server.requests], [200, 503, 503, 201])

    def test_it_goes_and_returns(self):
        client, port = self.client(), self.server.port
        client.ask("POST", SLICES, slice_of())
        self.server.stop()
        for broken in (client, self.client()):
            with self.assertRaises(OSError):
                broken.ask("GET", SLICES)
        self.server.start()
        self.assertEqual(self.server.port, port)
        self.assertEqual(len(self.ask("GET", SLICES)[1]["items"]), 1)

    def test_generated_names(self):
        made = [self.server.create("resourceslices", {**slice_of(), "metadata": {"generateName": "node-1-"}}) for _ in range(2)]
        self.assertEqual(len({each["metadata"]["name"] for each in made}), 2)


class Watch(ServerTest):
    def watch(self, path, **query):
        """The response of a watch that has begun."""
        query = "&".join(f"{key}={value}" for key, value in query.items())
        return self.client().begin("GET", f"{path}?watch=1&{query}")

    def next(self, response):
        event = json.loads(response.readline())
        return event["type"], event["object"]

    def test_tells_changes_in_their_order(self):
        claim = self.server.create("resourceclaims", claim_of("a"))
        began = self.server.list("resourceclaims")[0]["metadata"]["resourceVersion"]
        response = self.watch(CLAIMS, resourceVersion=began)
        self.server.create("resourceclaims", claim_of("elsewhere", namespace="other"))
        self.server.create("resourceclaims", claim_of("b"))
        self.server.patch("resourceclaims", "a", {"metadata": {"labels": {"x": "y"}}})
        self.server.delete("resourceclaims", "a")
        told = [self.next(response) for _ in range(3)]
        self.assertEqual([(kind, each["metadata"]["name"]) for kind, each in told],
                         [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")])
        self.assertEqual(told[2][1]["metadata"]["uid"], claim["metadata"]["uid"])
        versions = [int(each["metadata"]["resourceVersion"]) for _, each in told]
        self.assertEqual(versions, sorted(set(versions)))

    def test_begins_with_what_is_there(self):
        self.server.create("resourceslices", slice_of())
        response = self.watch(SLICES, fieldSelector=f"spec.nodeName%3D{NODE}")
        self.assertEqual(self.next(response)[0], "ADDED")

    def test_bookmarks_outlive_a_compaction(self):
        before = self.server.create("resourceslices", slice_of())["metadata"]["resourceVersion"]
        response = self.watch(SLICES, resourceVersion=before, allowWatchBookmarks="true")
        self.server.create("nodes", {"metadata": {"name": NODE}})
        self.server.send_bookmarks()
        kind, bookmark = self.next(response)
        self.assertEqual(kind, "BOOKMARK")
        self.server.compact()
        self.server.drop_watches()
        self.assertEqual(response.read(), b"")
        kind, status = self.next(self.watch(SLICES, resourceVersion=before))
        self.assertEqual((kind, status["kind"], status["code"], status["reason"]), ("ERROR", "Status", 410, "Expired"))
        response = self.watch(SLICES, resourceVersion=bookmark["metadata"]["resourceVersion"])
        self.server.delete("resourceslices", "node-1-gpus")
        self.assertEqual(self.next(response)[0], "DELETED")

    def test_gone_by_the_status(self):
        self.server.compact(by_status=True)
        self.assertEqual(self.watch(SLICES, resourceVersion=1).status, 410)

    def test_ends_cleanly_or_breaks(self):
        response = self.watch(SLICES, timeoutSeconds=1, allowWatchBookmarks="1", resourceVersion=self.server.version)
        self.assertEqual(self.next(response)[0], "BOOKMARK")
        self.assertEqual(response.read(), b"")
        for broken_by in (lambda: self.server.drop_watches(abruptly=True), self.server.stop):
            response = self.watch(SLICES)
            broken_by()
            with self.assertRaises((http.client.HTTPException, OSError)):
                response.read()

    def test_who_watches_is_known(self):
        client = self.client()
        response = client.begin("GET", f"{SLICES}?watch=1")
        self.server.wait_for(lambda: self.server.watches("resourceslices") == 1)
        response.close()
        client.close()
        self.server.wait_for(lambda: self.server.watches("resourceslices") == 0)
        with self.assertRaises(AssertionError):
            self.server.wait_for(lambda: False, deadline_s=0)


class Scheduling(ServerTest):
    def place(self, name, **wanted):
        """The results of a new claim; None if it does not fit."""
        options = {key: wanted.pop(key) for key in ("distinct", "pod", "class_config") if key in wanted}
        claim = self.server.create("resourceclaims", claim_of(name, **wanted))
        claim = allocate(self.server, claim, NODE, DRIVER, **options)
        return claim and claim["status"]["allocation"]["devices"]["results"]

    def test_two_share_a_gpu_and_the_third_waits(self):
        self.server.create("resourceslices", slice_of(gpu("gpu-0")))
        one, two = (self.place(name, memory="60Gi", compute=40)[0] for name in "ab")
        self.assertEqual((one["device"], two["device"], one["pool"]), ("gpu-0", "gpu-0", NODE))
        self.assertNotEqual(one["shareID"], two["shareID"])
        self.assertEqual(one["consumedCapacity"], {"memory": "60Gi", "compute": "40"})
        self.assertIsNone(self.place("c", memory="60Gi", compute=40))
        self.server.delete("resourceclaims", "a")
        self.assertTrue(allocate(self.server, self.server.get("resourceclaims", "c"), NODE, DRIVER))

    def test_requests_are_rounded_up(self):
        self.server.create("resourceslices", slice_of(gpu("gpu-0")))
        for wanted, memory in (("1100Mi", "2Gi"), ("1", "1Gi"), (None, "10Gi"), ("3Gi", "3Gi")):
            (result,) = self.place("a", memory=wanted)
            self.assertEqual(result["consumedCapacity"], {"memory": memory, "compute": "10"})
            self.server.delete("resourceclaims", "a")
        self.assertIsNone(self.place("a", memory="142Gi"))
        self.assertIsNone(self.place("b", memory="140.5Gi", compute="100.5"))

    def test_several_gpus(self):
        self.server.create("resourceslices", slice_of(gpu("gpu-0"), gpu("gpu-1")))
        self.assertEqual([result["device"] for result in self.place("a", count=2)], ["gpu-0", "gpu-1"])
        self.assertIsNone(self.place("b", count=3))
        twice = self.place("c", count=2, distinct=False)
        self.assertEqual([result["device"] for result in twice], ["gpu-0", "gpu-0"])
        self.assertEqual(len({result["shareID"] for result in twice}), 2)

    def test_only_whole_pools_and_healthy_devices(self):
        self.server.create("resourceslices", slice_of(gpu("gpu-0"), resourceSliceCount=2))
        self.assertIsNone(self.place("a"))
        sick = {**gpu("gpu-1"), "taints": [{"key": f"{DRIVER}/unhealthy", "effect": "NoExecute"}]}
        self.server.update("resourceslices", slice_of(sick, generation=2))
        self.assertIsNone(self.place("b"))
        self.server.update("resourceslices", slice_of(gpu("gpu-1"), generation=3))
        self.assertTrue(self.place("c"))

    def test_what_the_claim_says_is_written_into_it(self):
        self.server.create("resourceslices", slice_of({"name": "whole"}))
        pod = self.server.create("pods", {"metadata": {"name": "p"}, "spec": {"nodeName": NODE}})
        of_class = {"driver": DRIVER, "parameters": {"priority": 1}}
        self.assertEqual(self.place("a", parameters={"priority": 2}, pod=pod, class_config=[of_class]),
                         [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "whole"}])
        status = self.server.get("resourceclaims", "a")["status"]
        self.assertEqual(status["reservedFor"], [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}])
        self.assertEqual([(each["source"], each["opaque"]["parameters"]["priority"])
                          for each in status["allocation"]["devices"]["config"]], [("FromClass", 1), ("FromClaim", 2)])
        self.assertIsNone(self.place("b"))  # it is no device for two

    def test_a_claim_that_is_not_there(self):
        with self.assertRaises(ApiError):
            allocate(self.server, claim_of("a"), NODE, DRIVER)


class Quantities(unittest.TestCase):
    def test_are_written_in_one_way(self):
        for written, canonical in {
                "1024Mi": "1Gi", "1.5Gi": "1536Mi", "0.5Ki": "512", "100": "100", "2000": "2k", "0.5": "500m", "1500m": "1500m",
                "1e3": "1k", "0Gi": "0", 141: "141", "1Ei": "1Ei", "1E": "1E"}.items():
            self.assertEqual(quantity.canonical(written), canonical)

    def test_are_not_anything(self):
        for written in ("", "Gi", "1 Gi", "1GiB", "1gi", "1K", True, None, "--1"):
            with self.subTest(written), self.assertRaises(ValueError):
                quantity.value(written)


class Driver:
    """A driver that prepares every claim at once, and remembers what it was asked and told."""

    def __init__(self, kubelet, **info):
        self.socket = kubelet.registry / f"{DRIVER}-reg.sock"
        self.socket.unlink(missing_ok=True)
        endpoint = kubelet.plugins_dir / "dra.sock"
        self.info = registration.PluginInfo(**{"type": "DRAPlugin", "name": DRIVER, "endpoint": str(endpoint),
                                               "supported_versions": ["v1.DRAPlugin"], **info})
        self.told, self.asked, self.held = [], 0, threading.Event()
        self.held.set()
        self.results = lambda claim: {claim.uid: dra.NodePrepareResourceResponse(devices=[dra.Device(
            request_names=["gpu"], pool_name=NODE, device_name="gpu-0", cdi_device_ids=[f"tessera.dev/claim={claim.uid}"])])}
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.servers = [self.serve(endpoint, DRA, NodePrepareResources=self.prepare, NodeUnprepareResources=self.unprepare),
                        self.serve(self.socket, REGISTRATION, GetInfo=self.get_info, NotifyRegistrationStatus=self.notify)]

    def serve(self, path, service, **functions):
        server = grpc.server(self.pool)
        server.add_generic_rpc_handlers([handlers(service, functions)])
        server.add_insecure_port(f"unix:{path}")
        server.start()
        return server

    def get_info(self, _):
        self.asked += 1
        return self.info

    def notify(self, status):
        self.told.append((status.plugin_registered, status.error))
        return registration.RegistrationStatusResponse()

    def prepare(self, request):
        self.held.wait(DEADLINE_S)
        results = {}
        for claim in request.claims:
            results.update(self.results(claim))
        return dra.NodePrepareResourcesResponse(claims=results)

    def unprepare(self, request):
        return dra.NodeUnprepareResourcesResponse(
            claims={claim.uid: dra.NodeUnprepareResourceResponse() for claim in request.claims})

    def stop(self):
        self.held.set()
        for server in self.servers:
            server.stop(None).wait()
        self.pool.shutdown()
        self.socket.unlink(missing_ok=True)


class Registration(unittest.TestCase):
    CLAIM = ("default", "u-1", "a")

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.kubelet = Kubelet(self.folder, timeout_s=DEADLINE_S)
        self.addCleanup(self.kubelet.stop)

    def driver(self, **info):
        driver = Driver(self.kubelet, **info)
        self.addCleanup(driver.stop)
        return driver

    def test_claims_are_prepared_and_unprepared(self):
        self.kubelet.start()
        driver = self.driver()
        plugin = self.kubelet.wait_registered(DRIVER)
        self.assertEqual((plugin.name, plugin.versions, driver.told), (DRIVER, ("v1.DRAPlugin",), [(True, "")]))
        claim = {"metadata": {"namespace": "default", "name": "b", "uid": "u-2"}}
        prepared = self.kubelet.prepare([self.CLAIM, claim])
        self.assertEqual(set(prepared), {"u-1", "u-2"})
        self.assertEqual(list(prepared["u-2"].devices[0].cdi_device_ids), ["tessera.dev/claim=u-2"])
        self.assertEqual(self.kubelet.unprepare([claim])["u-2"].error, "")

    def test_a_restart_of_the_kubelet(self):
        driver = self.driver()  # which was there before
        self.kubelet.start()
        self.kubelet.wait_registered(DRIVER)
        self.kubelet.restart()
        self.kubelet.wait_registered(DRIVER, times=2)
        self.assertEqual((driver.asked, driver.told), (2, [(True, "")] * 2))
        self.assertTrue(self.kubelet.prepare([self.CLAIM]))

    def test_a_restart_of_the_driver(self):
        self.kubelet.start()
        self.driver()
        self.kubelet.wait_registered(DRIVER)
        driver = self.driver()  # with sockets in the place of the first one's, as after a crash
        self.kubelet.wait_registered(DRIVER, times=2)
        self.assertTrue(self.kubelet.prepare([self.CLAIM], driver=DRIVER))
        driver.stop()
        self.kubelet.wait_gone(DRIVER)
        with self.assertRaisesRegex(KubeletError, "not registered"):
            self.kubelet.prepare([self.CLAIM])

    def test_plugins_that_are_refused(self):
        self.kubelet.start()
        for info, why in (({"type": "CSIPlugin"}, "plugin type"), ({"name": "No Name"}, "no name of a driver"),
                          ({"supported_versions": ["v1beta1.DRAPlugin"]}, "versions"),
                          ({"endpoint": "dra.sock"}, "no absolute path")):
            with self.subTest(why):
                driver = self.driver(**info)
                self.kubelet.wait_failure(why)
                self.assertEqual(driver.told[0][0], False)
                self.assertIn(why, driver.told[0][1])
                driver.stop()
        self.assertIsNone(self.kubelet.registered())

    def test_a_socket_that_nobody_serves(self):
        self.kubelet.start()
        driver = self.driver()
        self.kubelet.wait_registered(DRIVER)
        self.kubelet.stop()
        dead = self.kubelet.registry / "dead-reg.sock"
        os.link(driver.socket, dead)
        for server in driver.servers:
            server.stop(None).wait()
        self.kubelet.start()
        self.kubelet.wait_failure("dead-reg.sock: UNAVAILABLE")

    def test_answers_that_are_wrong(self):
        self.kubelet.start()
        driver = self.driver()
        self.kubelet.wait_registered(DRIVER)
        for results, why in ((lambda claim: {}, "skipped 1"), (lambda claim: {"u-9": {}}, "unknown claim UID u-9"),
                             (lambda claim: {claim.uid: {"devices": [{"cdi_device_ids": ["tessera"]}]}}, "vendor/class=name")):
            driver.results = lambda claim, results=results: {
                uid: dra.NodePrepareResourceResponse(**each) for uid, each in results(claim).items()}
            with self.subTest(why), self.assertRaisesRegex(KubeletError, why):
                self.kubelet.prepare([self.CLAIM])
        driver.held.clear()
        self.kubelet.timeout_s = 0.1
        with self.assertRaisesRegex(KubeletError, "DEADLINE_EXCEEDED"):
            self.kubelet.prepare([self.CLAIM])


if __name__ == "__main__":
    unittest.main()
