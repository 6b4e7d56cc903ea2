#!/usr/bin/env python3
"""A daemon for tests of the command line: answers the HTTP API with canned objects and writes down what it was asked.

Started as tesserad is. What it should be like comes from fake.json in the folder of this file: "healthz" fields to
replace, "fail" to end with that line on stderr, "answers" from "METHOD /path" to [status, body], "refuse" to answer
what comes over client.sock with that text. Each start, request and packet is a line in its log.json-lines beside that.
"""

import argparse
import http.server
import json
import os
import pathlib
import socket
import socketserver
import struct
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
PLAN = json.loads((HERE / "fake.json").read_text()) if (HERE / "fake.json").exists() else {}


# Ours is the version of the program under test, which lies beside us.
PROTOCOL = json.loads(subprocess.run([HERE / "tessera", "version", "--json"], capture_output=True).stdout)["protocol"]

# Of src/wire/protocol.h: magic, version, type, bytes of the body, GPU.
HEADER = struct.Struct("<IHHII")
MAGIC = 0x53534554
GUARD, LISTENER, WELCOME, REFUSED = 11, 12, 65, 66


def log(entry):
    with open(HERE / "log.json-lines", "a") as file:
        file.write(json.dumps(entry) + "\n")


def vgpu(name, **fields):
    return {
        "name": name, "gpu": 0, "gpu_uuid": "GPU-0-of-" + name, "uid": 0, "ephemeral": False, "owner_pid": None,
        "memory_limit_bytes": 2 << 30, "memory_max_bytes": 2 << 30, "memory_current_bytes": 1 << 30,
        "memory_peak_bytes": 1 << 30, "memory_available_bytes": 1 << 30, "oom_events": 0, "compute_request_pct": 30,
        "compute_limit_pct": 60, "compute_weight": 100, "compute_priority": 8, "compute_current_pct": 12.5,
        "compute_busy_us": 1000, "compute_waited_us": 10, "state": "idle", "frozen": [], "slice_us": 0, "processes": [], **fields,
    }


def problem(status, detail, hint):
    return status, {"type": "about:blank", "title": "refused", "status": status, "detail": detail, "hint": hint}


def answer(method, path, body):
    planned = PLAN.get("answers", {}).get(f"{method} {path}")
    if planned:
        return planned
    if path == "/healthz":
        return 200, {"status": "ok", "version": "0.1.0", "protocol": PROTOCOL, "soft": False, "pid": os.getpid(),
                     "embedded": True, **PLAN.get("healthz", {})}
    if (method, path) == ("POST", "/v1/vgpus"):
        return 201, vgpu(body.get("name", "made"))
    if (method, path) == ("GET", "/v1/vgpus"):
        return 200, {"vgpus": [vgpu("a"), vgpu("b")]}
    if path.removesuffix("?wait=false") in ("/v1/vgpus/a", "/v1/vgpus/b"):
        return (204, None) if method == "DELETE" else (200, vgpu(path.removesuffix("?wait=false")[-1]))
    if path in [f"/v1/{what}/{verb}" for what in ("vgpus/a", "vgpus/7", "processes/7") for verb in ("freeze", "thaw")]:
        return 204, None
    if path == "/v1/processes/7/adopt":
        return 200, {"pid": 7, "vgpu": body["vgpu"], "managed": True, "adopted": True, "state": None}
    if path == "/v1/doctor":
        return 200, {"checks": [{"name": "channel control", "ok": True, "text": "works", "hint": ""}]}
    return problem(404, f"there is no {path}", "see tessera vgpu ls")


def serve_program(peer, kept):
    """One conversation over client.sock. The listeners are kept: without one, the program's calls would fail."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(peer, 8192, 1)
        if not packet:
            return
        kept += descriptors
        kind = HEADER.unpack_from(packet)[2]
        body = packet[HEADER.size:]
        entry = {"packet": kind, "descriptors": len(descriptors)}
        if kind == GUARD:
            entry |= {"vgpus": body[:512].rstrip(b"\0").decode(), "program": body[512:].rstrip(b"\0").decode()}
        log(entry)
        if "refuse" in PLAN:
            text = PLAN["refuse"].encode()
            peer.send(HEADER.pack(MAGIC, PROTOCOL, REFUSED, 512, 0) + struct.pack("<iI504s", 1, 0, text))
        else:
            peer.send(HEADER.pack(MAGIC, PROTOCOL, WELCOME, 224, 0) + bytes(224))


def serve_programs(listener):
    kept = []
    while True:
        peer, _ = listener.accept()
        with peer:
            serve_program(peer, kept)


class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        if self.path != "/healthz":
            log({"method": self.command, "path": self.path, "body": body})
        status, content = answer(self.command, self.path, body)
        content = content.encode() if isinstance(content, str) else b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class Server(socketserver.UnixStreamServer):
    request_queue_size = 512


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--exit-when-idle", action="store_true")
    parser.add_argument("--config")
    parser.add_argument("--soft", nargs="?", const="")
    options = parser.parse_args()
    log({"started": os.getpid(), "soft": options.soft, "preload": os.environ.get("LD_PRELOAD")})
    if "fail" in PLAN:
        sys.exit(PLAN["fail"])
    if options.soft is not None:
        PLAN.setdefault("healthz", {})["soft"] = True
    programs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs.bind(options.run_dir + "/client.sock")
    programs.listen()
    threading.Thread(target=serve_programs, args=(programs,), daemon=True).start()
    # The socket appears under its name only once it listens.
    path = options.run_dir + "/api.sock"
    server = Server(path + ".new", Handler)
    os.rename(path + ".new", path)
    server.serve_forever()


if __name__ == "__main__":
    main()
