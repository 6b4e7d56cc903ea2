"""docs/reference/openapi.json says what the API is: every answer is held against it, and every path asked for."""
import json
import pathlib
import re
import sys
import unittest

try:
    import jsonschema
except ImportError:  # a Python that is not the distribution's, whose packages serve as well
    sys.path.append("/usr/lib/python3/dist-packages")
    import jsonschema

from harness import GIB, SoftGpuTest, UnixConnection, wait_for

SPEC = json.loads((pathlib.Path(__file__).resolve().parent.parent.parent / "docs/reference/openapi.json").read_text())
METHODS = ("get", "post", "patch", "delete", "put")


def refs(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


class OpenApi(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.asked = set()
        self.start_daemon(config='[swap]\nsize = "2G"\nfloor = "1G"\n')

    def ask(self, method, template, body=None, query="", headers=None, **values):
        """Sends a request, and holds body and answer against the document. Status and answer."""
        operation = SPEC["paths"][template][method]
        self.asked.add((method, template))
        if body is not None:
            schema = operation["requestBody"]["content"]["application/json"].get("schema", {})
            self.check(schema, body)
        connection = UnixConnection(self.run_dir / "api.sock")
        try:
            text = "" if body is None else json.dumps(body)
            connection.request(method.upper(), template.format(**values) + query, text.encode(), headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        described = operation["responses"].get(str(answer.status), operation["responses"]["default"])
        if "content" not in described:
            self.assertEqual(content, b"")
            return answer.status, None
        kind = answer.getheader("Content-Type").split(";")[0]
        self.assertIn(kind, described["content"], f"{method} {template}: {answer.status}")
        for name in described.get("headers", {}):
            self.assertTrue(answer.getheader(name), f"{method} {template} has no {name}")
        if not kind.endswith("json"):
            return answer.status, content.decode()
        told = json.loads(content)
        self.check(described["content"][kind]["schema"], told)
        return answer.status, told

    def check(self, schema, value):
        jsonschema.Draft202012Validator({**schema, "components": SPEC["components"]}).validate(value)

    def test_the_document_is_whole(self):
        self.assertEqual(SPEC["openapi"], "3.1.0")
        for ref in refs(SPEC):
            self.assertIn(ref.rpartition("/")[2], SPEC["components"]["schemas"], ref)
        used = {ref.rpartition("/")[2] for ref in refs(SPEC)}
        self.assertEqual(used, set(SPEC["components"]["schemas"]), "a schema that nobody uses")
        names = [operation["operationId"] for path in SPEC["paths"].values() for method, operation in path.items()
                 if method in METHODS]
        self.assertEqual(len(names), len(set(names)))
        for schema in SPEC["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_every_answer_is_as_it_says(self):
        for path in ("/", "/healthz", "/metrics", "/v1/events", "/v1/gpus", "/v1/overview", "/v1/trace", "/v1/vgpus",
                     "/v1/processes", "/v1/spaces", "/v1/doctor"):
            self.assertEqual(self.ask("get", path)[0], 200, path)
        request = {"name": "team", "gpu": 0, "memory_limit": "256M", "memory_max": GIB, "compute_request": 30,
                   "compute_weight": "200", "memory_swap_max": None, "goal": "p99=20ms", "gang": "job",
                   "labels": {"team": "a", "pod": "llm-0"}, "within_quota": False}
        self.assertEqual(self.ask("post", "/v1/vgpus", request)[0], 201)
        self.assertEqual(self.ask("post", "/v1/vgpus", request)[0], 409)
        self.assertEqual(self.ask("post", "/v1/vgpus", {"name": "a/b"})[0], 400)
        self.assertEqual(self.ask("post", "/v1/vgpus", {"name": "b", "labels": {"vgpu": "x"}})[0], 400)
        tenant = self.tenant_in("team", "--memory", "100M")
        tenant.makes_progress()
        for path in ("/v1/events", "/v1/gpus", "/v1/trace", "/v1/vgpus", "/v1/processes"):
            self.assertEqual(self.ask("get", path)[0], 200, path)
        vgpu, process = "/v1/vgpus/{name}", "/v1/processes/{pid}"
        status, told = self.ask("get", vgpu, name="team")
        self.assertEqual((status, told["memory_limit_bytes"]), (200, 256 << 20))
        self.assertEqual(self.ask("get", vgpu, name="none")[0], 404)
        self.assertEqual(self.ask("patch", vgpu, {"compute_limit": 80, "goal": None, "gang": None, "labels": None}, name="team")[0], 200)
        stale = {"If-Match": f'"{told["tag"]}"'}
        self.assertEqual(self.ask("patch", vgpu, {"compute_limit": 70}, name="team", headers=stale)[0], 412)
        status, told = self.ask("get", process, pid=tenant.pid)
        self.assertEqual((status, told["processes"][0]["vgpu"]), (200, "team"))
        self.assertEqual(self.ask("get", process, pid=1)[0], 404)
        for path in ("/v1/overview", "/v1/timeline"):
            self.assertEqual(self.ask("get", path)[1]["vgpus"][0]["name"], "team", path)
        for file in ("main.js", "page.css", "icon.svg"):
            self.assertEqual(self.ask("get", "/page/{file}", file=file)[0], 200, file)
        self.assertEqual(self.ask("get", "/page/{file}", file="none.js")[0], 404)
        self.assertEqual(self.ask("get", "/v1/events", query="?last=-1")[0], 400)
        self.assertEqual(self.ask("get", "/v1/trace", query="?past_ms=x")[0], 400)
        one = "/v1/spaces/{name}"
        self.assertEqual(self.ask("post", "/v1/spaces", {"name": "kept", "gpu": 0})[0], 201)
        self.assertEqual(self.ask("post", "/v1/spaces", {"name": "kept"})[0], 409)
        self.assertEqual(self.ask("post", "/v1/spaces", {"name": "a/b"})[0], 400)
        self.assertEqual(self.ask("post", "/v1/vgpus", {"name": "member", "space": "kept", "sm_limit": 33.5})[0], 201)
        self.assertEqual(self.ask("get", "/v1/spaces")[1]["spaces"][0]["vgpus"], ["member"])
        self.assertEqual(self.ask("get", one, name="kept")[1]["kept"], True)
        self.assertEqual(self.ask("get", one, name="none")[0], 404)
        self.assertEqual(self.ask("delete", vgpu, name="member")[0], 204)
        self.assertEqual(self.ask("delete", one, name="kept")[0], 204)
        for action in ("drain", "undrain"):
            self.assertEqual(self.ask("post", "/v1/gpus/{gpu}/" + action, {} if action == "drain" else None, gpu=7)[0], 404)
        self.assertEqual(self.ask("post", "/v1/gpus/{gpu}/drain", {"dry_run": True}, gpu=0)[0], 200)
        self.assertEqual(self.ask("post", "/v1/gpus/{gpu}/drain", {}, gpu=0)[1]["staying"][0]["vgpu"], "team")
        self.assertEqual(self.ask("get", "/v1/gpus")[1]["gpus"][0]["draining"], True)
        self.assertEqual(self.ask("post", "/v1/gpus/{gpu}/undrain", gpu=0)[0], 204)
        self.assertEqual(self.ask("post", "/v1/rebalance", {"memory_request": "1G", "dry_run": True})[0], 200)
        self.assertEqual(self.ask("post", "/v1/rebalance", {"memory_request": "8G"})[0], 409)
        config = self.run_dir / "config.toml"
        config.write_text(config.read_text() + "[client]\ngrace_s = 5\n")
        self.assertEqual(self.ask("post", "/v1/reload")[1]["changes"][0]["key"], "client.grace_s")
        config.write_text("nonsense")
        self.assertEqual(self.ask("post", "/v1/reload")[0], 400)
        self.assertEqual(self.ask("get", "/v1/trace", query="?saved=1")[0], 404)
        self.assertEqual(self.ask("post", process + "/evict", {"to_bytes": 0}, pid=tenant.pid)[0], 202)
        self.assertEqual(self.ask("post", vgpu + "/evict", {}, name="team")[0], 202)
        for path, values in ((process, {"pid": tenant.pid}), (vgpu, {"name": "team"})):
            for action in ("/freeze", "/thaw"):
                self.assertEqual(self.ask("post", path + action, **values)[0], 204)
        for path, values in ((process, {"pid": tenant.pid}), (vgpu, {"name": "team"})):
            status, told = self.ask("post", path + "/migrate", {"gpus": ["0"], "dry_run": True}, **values)
            self.assertEqual((status, told["moves"]), (200, [{"vgpu": "team", "from": 0, "to": 0}]))
            self.assertEqual(self.ask("post", path + "/migrate", {"gpus": ["7"]}, **values)[0], 404)
            self.assertEqual(self.ask("post", path + "/suspend", **values)[0], 202)
            self.assertEqual(self.ask("post", path + "/resume", **values)[0], 202)
            wait_for("it to be back", lambda: not self.json("ps")["processes"][0]["suspension"])
        self.assertEqual(self.ask("post", process + "/adopt", {"vgpu": "team"}, pid=1)[0] // 100, 4)
        self.assertEqual(self.ask("delete", vgpu, name="team")[0], 409)
        self.assertEqual(self.ask("delete", vgpu, name="team", headers=stale)[0], 412)
        self.assertEqual(self.ask("delete", vgpu, query="?force=1", name="team")[0], 204)
        described = {(method, path) for path, item in SPEC["paths"].items() for method in item if method in METHODS}
        self.assertEqual(self.asked, described)

    def test_what_it_does_not_name_is_refused(self):
        for path, item in SPEC["paths"].items():
            real = re.sub(r"\{name\}", "team", path).replace("{pid}", "1").replace("{gpu}", "0")
            for method in METHODS:
                if method not in item:
                    status = self.api(method.upper(), real, {} if method in ("post", "patch", "put") else None)[0]
                    self.assertIn(status, (404, 405), f"{method} {real}")


if __name__ == "__main__":
    unittest.main()
