"""The requests of one connection to the API server, and what they are answered."""
import contextlib
import http.server
import json
import re
import urllib.parse

from objects import ApiError, kind_of

PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)"
                  r"(?:/(?P<name>[^/]+))?(?:/(?P<status>status))?")
PATCHES = ("application/merge-patch+json", "application/apply-patch+yaml")


def field(each, path):
    for key in path.split("."):
        each = each.get(key, {}) if isinstance(each, dict) else {}
    return each


def terms(selector):
    pairs = [term.replace("==", "=").partition("=") for term in selector.split(",") if term]
    for key, equals, _ in pairs:
        if not equals or key.endswith("!"):
            raise ApiError(400, f'only key=value is supported here, not "{selector}"')
    return {key: value for key, _, value in pairs}


def chosen_by(kind, fields, labels):
    """Whether an object has these fields and labels: "key=value,key!=value"; labels with "=" only."""
    known = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()), *kind.fields)
    conditions = [(*each.partition("!=")[::2], False) if "!=" in each else (*each.partition("=")[::2], True)
                  for each in fields.split(",") if each]
    labels = terms(labels)
    for key, *_ in conditions:
        if key not in known:
            raise ApiError(400, f'field label not supported: "{key}"')
    return lambda each: (all((field(each, key) == value) == wanted for key, value, wanted in conditions)
                         and labels.items() <= each["metadata"].get("labels", {}).items())


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass  # the server remembers all requests

    def answer(self):
        try:
            body = self.body()
            self.admit()
            result = self.result(body)
        except ApiError as error:
            self.reply(error.code, error.status())
        else:
            if result is not None:
                self.reply(*result)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def body(self):
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise ApiError(411, "a Content-Length is required")
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            body = json.loads(text) if text else {}
        except ValueError as error:
            raise ApiError(400, f"the body is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise ApiError(400, "the body is no JSON object")
        return body

    def admit(self):
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise ApiError(401, "Unauthorized")
        code = self.server.failure(self.command)
        if code:
            raise ApiError(code, "the test has asked for this failure")

    def reply(self, code, answer):
        self.server.heard(self.command, self.path, code)
        text = json.dumps(answer).encode() + b"\n"
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if code in (429, 503):
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(text)

    def result(self, body):
        """Status and object, or None where a watch was the answer."""
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        match = PATH.fullmatch(url.path)
        resource = match["resource"] if match else ""
        kind = kind_of(resource)
        if kind.group != (f"{match['group']}/v1" if match["group"] else "v1"):
            raise ApiError(404, "the server could not find the requested resource")
        name, namespace, status = match["name"], match["namespace"], match["status"] is not None
        if (namespace is not None) != kind.namespaced and (namespace or name or self.command != "GET"):
            raise ApiError(404, "the server could not find the requested resource")
        if self.server.rights:
            self.server.rights.check(self.command, match["group"] or "", resource, name, status, query, body)
        if self.command == "GET" and name is None:
            return self.many(kind, resource, namespace, query)
        if self.command == "GET":
            return 200, self.server.get(resource, name, namespace)
        if self.command == "POST" and name is None:
            return 201, self.server.create(resource, self.placed(body, None, namespace))
        if name is None or (status and (self.command == "DELETE" or not kind.has_status)):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        if self.command == "PUT":
            return 200, self.server.update(resource, self.placed(body, name, namespace), status)
        if self.command == "PATCH":
            return self.patched(resource, name, namespace, body, status, query)
        gone = self.server.delete(resource, name, namespace, body.get("preconditions"))
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                     "details": {"name": name, "kind": resource, "uid": gone["metadata"]["uid"]}}

    @staticmethod
    def placed(body, name, namespace):
        """The object, where the path says that it is."""
        meta = body.get("metadata", {})
        for key, value in (("name", name), ("namespace", namespace)):
            if value is not None and meta.get(key, value) != value:
                raise ApiError(400, f"the {key} of the object ({meta[key]}) does not match the one of the URL ({value})")
        where = {"name": name, "namespace": namespace}
        return {**body, "metadata": {**meta, **{key: value for key, value in where.items() if value is not None}}}

    def patched(self, resource, name, namespace, body, status, query):
        form = self.headers.get("Content-Type", "").split(";")[0]
        if form not in PATCHES:
            raise ApiError(415, f"the body of a PATCH must be one of {', '.join(PATCHES)}, not {form!r}")
        body = self.placed(body, name, namespace)
        if form == PATCHES[1]:
            if "fieldManager" not in query:
                raise ApiError(400, "PatchOptions.fieldManager: Required value: is required for apply patch")
            if not status and not any(each["metadata"]["name"] == name for each in self.server.list(resource, namespace)):
                return 201, self.server.create(resource, body)
        return 200, self.server.patch(resource, name, body, namespace, status)

    def many(self, kind, resource, namespace, query):
        where = chosen_by(kind, query.get("fieldSelector", ""), query.get("labelSelector", ""))
        if query.get("watch") not in ("1", "true"):
            with self.server.changed:
                items = self.server.list(resource, namespace, where)
                for each in items:
                    del each["apiVersion"], each["kind"]  # as the real server has it: the list's tells enough
                return 200, {"kind": f"{kind.name}List", "apiVersion": kind.group, "items": items,
                             "metadata": {"resourceVersion": str(self.server.version)}}
        version = query.get("resourceVersion", "")
        if not version.isdecimal() and version:
            raise ApiError(400, f"resourceVersion: invalid value: {version!r}")
        since = int(version or 0) or None
        if self.server.gone_by_status and self.server.is_gone(since):
            raise ApiError(410, self.server.too_old(since))
        bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        self.stream(self.server.watch(self.connection, resource, namespace, where, since, bookmarks,
                                      int(query.get("timeoutSeconds", 0))))
        return None

    def stream(self, events):
        with contextlib.closing(events):
            next(events)  # who sees the headers can rely on being told what happens from then on
            self.server.heard(self.command, self.path, 200)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events:
                self.chunk(json.dumps(event).encode() + b"\n")
        self.chunk(b"")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
