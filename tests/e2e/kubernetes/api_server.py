"""An API server of Kubernetes as far as a driver sees it: HTTPS, a bearer token, watches, conflicts, and its troubles."""
import collections
import os
import pathlib
import secrets
import select
import socket
import ssl
import subprocess
import threading
import time

from api_requests import Requests
from objects import KINDS, ApiError, Objects

DEADLINE_S = 60
CERTIFICATES = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
"""

Failure = collections.namedtuple("Failure", "code method")
Request = collections.namedtuple("Request", "method path code")  # path with its query


def make_certificates(folder):
    """ca.crt, and server.crt and server.key that are of its authority."""
    (folder / "openssl.cnf").write_text(CERTIFICATES)

    def openssl(name, subject, *more):
        subprocess.run(["openssl", "req", "-config", "openssl.cnf", "-extensions", name, "-x509", "-days", "2", "-nodes",
                        "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={subject}", "-keyout",
                        f"{name}.key", "-out", f"{name}.crt", *more], cwd=folder, check=True, capture_output=True)

    openssl("ca", "authority of a test")
    openssl("server", "localhost", "-CA", "ca.crt", "-CAkey", "ca.key")


class Cut(Exception):
    """The connection of a watch is to break."""


class ApiServer(Objects):
    """Keeps its port from the beginning until close(), whether it runs or not.

    `ca_file` and `token_file` lie in a folder like a service account's in a pod. The methods of Objects (create, get,
    list, update, patch, delete) act without HTTP, as what is done by others in the cluster.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)
        self.account = self.folder / "account"
        self.account.mkdir(parents=True)
        make_certificates(self.folder)
        os.link(self.folder / "ca.crt", self.account / "ca.crt")
        (self.account / "namespace").write_text("default")
        self.ca_file, self.token_file = self.account / "ca.crt", self.account / "token"
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        self.requests = []  # all that were answered; a watch when it begins
        self.failures = []  # of the next requests
        self.open = []      # watches, as (resource, connection)
        self.drops, self.cut, self.bookmarks, self.gone_by_status = 0, False, 0, False
        self.rights = None  # of the token's user (rights.py); None: all
        self.expire_token()
        # It never listens: it keeps others from the port while we do not listen either.
        self.holder = self._bound(0)
        self.port = self.holder.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self.listener, self.threads, self.connections = None, [], set()

    @staticmethod
    def _bound(port):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        return bound

    # ---- what a test does to it ----

    def start(self):
        self.listener = self._bound(self.port)
        self.listener.listen(64)
        self._thread(self._accept, self.listener)
        return self

    def stop(self):
        """The server is gone, and all connections with it. What it kept stays."""
        with self.changed:
            listener, self.listener = self.listener, None
            self.changed.notify_all()
            for each in [*([listener] if listener else []), *self.connections]:
                try:
                    socket.socket.shutdown(each, socket.SHUT_RDWR)  # SSLSocket's own would make it a plain one
                except OSError:
                    pass  # the other side was first
        while threads := self._taken():
            for thread in threads:
                thread.join()
        if listener:
            listener.close()

    def close(self):
        self.stop()
        self.holder.close()

    def expire_token(self):
        """From now on another token is valid, which the file holds already."""
        token, new = secrets.token_urlsafe(), self.account / "token.new"
        new.write_text(token)
        new.replace(self.token_file)
        self.token = token

    def fail_next(self, count, code, method=None):
        """The next requests (of this method) are answered by this code alone."""
        with self.changed:
            self.failures += [Failure(code, method)] * count

    def drop_watches(self, abruptly=False):
        """Ends all watches, as the server does every few minutes; or breaks their connections."""
        with self.changed:
            self.drops, self.cut = self.drops + 1, abruptly
            self.changed.notify_all()

    def send_bookmarks(self):
        with self.changed:
            self.bookmarks += 1
            self.changed.notify_all()

    def compact(self, by_status=False):
        """A watch from before now is gone: told by an ERROR event, as by the real one's cache, or by the answer's status."""
        self.gone_by_status = by_status
        self.forget_changes()

    def watches(self, resource):
        """How many are open. Who watches sends nothing more: what can be read is the end of the connection."""
        with self.changed:
            watching = [connection for kind, connection in self.open if kind == resource]
            return len(watching) - len(select.select(watching, [], [], 0)[0])

    def wait_for(self, predicate, deadline_s=DEADLINE_S):
        """The value of predicate() as soon as it is true; it is asked at each change and each request."""
        end = time.monotonic() + deadline_s
        with self.changed:
            while not (value := predicate()):
                if time.monotonic() > end:
                    raise AssertionError(f"waited {deadline_s} s; the last requests were {self.requests[-10:]}")
                self.changed.wait(0.05)  # connections end without a notice
        return value

    # ---- for the requests ----

    def heard(self, method, path, code):
        with self.changed:
            self.requests.append(Request(method, path, code))
            self.changed.notify_all()

    def failure(self, method):
        """The code by which this request is to fail, if it is."""
        with self.changed:
            for i, failure in enumerate(self.failures):
                if failure.method in (None, method):
                    return self.failures.pop(i).code
        return None

    def is_gone(self, since):
        return since is not None and since < self.horizon

    def too_old(self, since):
        return f"too old resource version: {since} ({self.horizon})"

    def watch(self, connection, resource, namespace, where, since, wants_bookmarks, timeout_s):
        """None when the watch has begun, and its events until it ends. since: None for all objects that there are."""
        end = time.monotonic() + timeout_s if timeout_s else None
        with self.changed:
            gone = self.is_gone(since)
            drops, bookmarks = self.drops, self.bookmarks
            present = self.list(resource, namespace, where) if since is None else []
            seen = self.version if since is None else since
            this = (resource, connection)
            self.open.append(this)
            self.changed.notify_all()
        try:
            yield None
            if gone:
                yield {"type": "ERROR", "object": ApiError(410, self.too_old(since)).status()}
                return
            yield from ({"type": "ADDED", "object": each} for each in present)
            while True:
                with self.changed:
                    in_time = self.changed.wait_for(
                        lambda: (self.listener is None or self.version > seen
                                 or (self.drops, self.bookmarks) != (drops, bookmarks)),
                        None if end is None else max(0, end - time.monotonic()))
                    if self.listener is None or (self.drops > drops and self.cut):
                        raise Cut
                    if self.drops > drops:
                        return
                    events = list(self.events(resource, namespace, where, seen))
                    seen = max(seen, self.version)
                    if wants_bookmarks and (not in_time or self.bookmarks > bookmarks):
                        events.append(self._bookmark(resource))
                    bookmarks = self.bookmarks
                yield from events
                if not in_time:
                    return
        finally:
            with self.changed:
                self.open.remove(this)
                self.changed.notify_all()

    def _bookmark(self, resource):
        kind = KINDS[resource]
        meta = {"resourceVersion": str(self.version), "creationTimestamp": None}
        return {"type": "BOOKMARK", "object": {"kind": kind.name, "apiVersion": kind.group, "metadata": meta}}

    # ---- its threads: one that accepts, and one for each connection ----

    def _thread(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, name=f"api server {target.__name__}")
        with self.changed:
            self.threads = [each for each in self.threads if each.is_alive()] + [thread]
            thread.start()

    def _taken(self):
        """The threads that there are; all of them have been started."""
        with self.changed:
            threads, self.threads = self.threads, []
        return threads

    def _accept(self, listener):
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            self._thread(self._serve, listener, connection, address)

    def _serve(self, listener, plain, address):
        try:
            with plain, self.tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as connection:
                with self.changed:
                    if self.listener is not listener:
                        return
                    self.connections.add(connection)
                try:
                    connection.do_handshake()
                    Requests(connection, address, self)
                finally:
                    with self.changed:
                        self.connections.discard(connection)
        except (OSError, Cut):
            pass  # the client is gone, or we are
