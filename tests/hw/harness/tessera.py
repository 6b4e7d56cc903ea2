"""Tessera as it lies in a dist folder: a daemon of our own in a run directory of our own, its API, and `tessera run`."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from harness import processes


class Answer(dict):
    """The JSON of an answer, with its status."""

    def __init__(self, status, body):
        super().__init__(body)
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Tessera:
    def __init__(self, dist, run_dir, soft=None, log=None):
        self.dist = pathlib.Path(dist).resolve()
        self.run_dir = pathlib.Path(run_dir)
        self.soft = soft  # the soft GPU's specification, or None for real GPUs
        self.cli = self.dist / "bin" / "tessera"
        self.tenant = self.dist / "lib" / "tessera" / "tessera-tenant"
        self._log = log
        self._daemon = None
        self.config = ""  # of the daemon that runs, or ran last

    # The daemon

    def start(self, limit_s=20, config="", prefix=()):
        """With a configuration, in the text of its file, and started by `prefix` if there is one."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir.chmod(0o755)
        file = self.run_dir / "hw.toml"
        file.write_text(config)
        self.config = config
        argv = [*prefix, self.dist / "bin" / "tesserad", "--run-dir", self.run_dir, "--config", file, "--log-level", "debug"]
        if self.soft is not None:
            argv += ["--soft", self.soft]
        os.environ.pop("JOURNAL_STREAM", None)  # its log is to come here
        self._daemon = processes.Program(argv)
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if not self._daemon.alive():
                raise RuntimeError(f"tesserad ended: {''.join(self._daemon.errors)[-400:]}")
            if self.answers() and not self._testing():
                return
            time.sleep(0.02)
        raise RuntimeError(f"tesserad did not answer within {limit_s} s")

    def _testing(self):
        """Whether the daemon still finds out if it can steer channels."""
        gpus = self.get("/v1/gpus")["gpus"]
        return any("under way" in gpu["control"]["why"] for gpu in gpus)

    def answers(self):
        try:
            return self.api("GET", "/healthz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def log_lines(self):
        """The lines that the daemon has logged until now: a list that grows."""
        return self._daemon.errors if self._daemon else []

    @property
    def daemon_pid(self):
        return self._daemon.pid

    def alive(self):
        return self._daemon is not None and self._daemon.alive()

    def kill(self, mover=None):
        """kill -9, as a crash would, of the mover with this pid, too. The swap holder lives on, with what programs have in host
        memory, for the next daemon."""
        if mover is not None:
            os.kill(mover, signal.SIGKILL)
        if self._daemon.alive():  # it may have been killed by a fault
            self._daemon.signal(signal.SIGKILL)
        self._daemon.wait(10)
        self._keep_log(children_too=False)

    def stop(self):
        if self._daemon is None:
            return
        if self._daemon.alive():
            self._daemon.signal(signal.SIGTERM)
            try:
                self._daemon.wait(10)
            except TimeoutError:
                pass
        self._keep_log()

    def _keep_log(self, children_too=True):
        daemon, self._daemon = self._daemon, None
        if children_too:
            daemon.kill()
        if self._log:
            with open(self._log, "a") as log:
                log.write(f"--- tesserad {daemon.pid} ended with {daemon.finished().status}\n")
                log.writelines(daemon.transcript + daemon.errors)

    # Its API

    def api(self, method, path, body=None):
        connection = _UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": "application/json"} if body is not None else {})
            response = connection.getresponse()
            text = response.read()
            return Answer(response.status, json.loads(text) if text else {})
        finally:
            connection.close()

    def get(self, path):
        answer = self.api("GET", path)
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.get('detail', '')}")
        return answer

    def raw(self, path):
        """The text of an answer that is no JSON."""
        connection = _UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def gpu(self, index=0):
        return self.get("/v1/gpus")["gpus"][index]

    def vgpu(self, name):
        """The vGPU, or None if there is no such."""
        answer = self.api("GET", f"/v1/vgpus/{name}")
        return answer if answer.status == 200 else None

    def create(self, name, **fields):
        answer = self.api("POST", "/v1/vgpus", {"name": name, **fields})
        if answer.status != 201:
            raise RuntimeError(f"vGPU {name} was not created: {answer.get('detail', answer)}")
        return answer

    def set(self, name, **fields):
        answer = self.api("PATCH", f"/v1/vgpus/{name}", fields)
        if answer.status != 200:
            raise RuntimeError(f"vGPU {name} was not changed: {answer.get('detail', answer)}")
        return answer

    def delete(self, name):
        self.api("DELETE", f"/v1/vgpus/{name}?force=1")

    def of_vgpu(self, name):
        """The daemon's rows about the processes of a vGPU."""
        return [p for p in self.get("/v1/processes")["processes"] if p["vgpu"] == name]

    def processes(self):
        return self.get("/v1/processes")["processes"]

    def process(self, pid):
        """The daemon's row about a process, or None."""
        return next((p for p in self.processes() if p["pid"] == pid), None)

    def act(self, what, verb):
        """Freezes or thaws a process (a pid) or a vGPU (a name); the microseconds of the whole request."""
        path = f"/v1/processes/{what}/{verb}" if isinstance(what, int) else f"/v1/vgpus/{what}/{verb}"
        begin = time.monotonic()
        answer = self.api("POST", path, {})
        took_us = (time.monotonic() - begin) * 1e6
        if answer.status != 204:
            raise RuntimeError(f"POST {path}: {answer.status} {answer.get('detail', '')}")
        return took_us

    def freeze(self, what):
        return self.act(what, "freeze")

    def thaw(self, what):
        return self.act(what, "thaw")

    def evict(self, pid, to_bytes=0):
        """Has the memory of a process brought out; that goes on after this has returned."""
        answer = self.api("POST", f"/v1/processes/{pid}/evict", {"to_bytes": to_bytes})
        if answer.status != 202:
            raise RuntimeError(f"evict {pid}: {answer.status} {answer.get('detail', '')}")

    def cli_command(self, *words):
        """`tessera WORDS`, asked of this daemon."""
        return [self.cli, *words, "--run-dir", self.run_dir]

    # Programs

    def command(self, argv, **options):
        """`tessera run` with --name value for each option, then the program."""
        flags = [part for name, value in options.items() if value is not None
                 for part in (f"--{name.replace('_', '-')}", str(value))]
        return [self.cli, "run", "--run-dir", self.run_dir, *flags, "--", *argv]

    def plain_environment(self):
        """The environment in which a program finds the driver without Tessera: nothing, or the soft GPU's own library."""
        if self.soft is None:
            return {}
        return {"LD_LIBRARY_PATH": str(self.dist / "lib" / "tessera" / "soft"), "TESSERA_SOFT": self.soft}

    def driver_library(self):
        """The absolute path of the driver's own library, or None."""
        if self.soft is not None:
            return self.dist / "lib" / "tessera" / "soft" / "libcuda.so.1"
        cached = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
        listed = re.findall(r"libcuda\.so\.1 .*x86-64.* => (\S+)", cached)
        for path in [*listed, "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"]:
            if os.path.exists(path):
                return pathlib.Path(path)
        return None
