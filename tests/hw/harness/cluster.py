"""A Kubernetes node beside the real GPUs: tessera-kubelet between stand-ins of the kubelet and of the API server
(tests/e2e/kubernetes), and containers as an engine starts them, by crun and the driver's CDI specifications."""
import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

from harness import processes
from harness.checks import Skipped, expect

NODE, DRIVER = "hw-node", "gpu.tessera.dev"
STAND_INS = pathlib.Path(__file__).resolve().parents[2] / "e2e" / "kubernetes"
BASE_PROFILE = "/usr/share/containers/seccomp.json"
CAPABILITIES = [f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP",
                                           "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")]  # as containerd gives them

# In a mount namespace of the engine's: the container's root is this machine's. crun takes no machine with cgroup v1 and
# controllers in v2.
START = """
set -e
mount --make-rprivate /
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
mount --rbind / "$1"
shift
exec crun "$@"
"""


def stand_ins():
    sys.path.insert(0, str(STAND_INS))
    try:
        import api_server
        import kubelet
        import scheduler
    except ImportError as error:
        raise Skipped(f"the stand-ins of Kubernetes need {error.name}") from error
    return api_server, kubelet, scheduler


class Cluster(contextlib.ExitStack):
    """One node. Claims are what the scheduler has given devices."""

    def __init__(self, bench):
        super().__init__()
        api_server, kubelet, self.scheduler = stand_ins()
        self.bench, self.tessera = bench, bench.tessera
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="node-", dir=bench.folder))
        self.server = api_server.ApiServer(self.folder / "api").start()
        self.callback(self.server.close)
        self.server.create("nodes", {"metadata": {"name": NODE}})
        self.kubelet = kubelet.Kubelet(self.folder / "kubelet").start()
        self.callback(self.kubelet.stop)
        self.cdi = self.folder / "cdi"
        flags = [] if bench.soft else ["--no-driver"]  # containers have the machine's own files
        argv = [bench.tessera.dist / "bin" / "tessera-kubelet", "--node-name", NODE, "--run-dir", bench.tessera.run_dir,
                "--kubelet-dir", self.folder / "kubelet", "--cdi-dir", self.cdi, "--api-server", self.server.url,
                "--ca-file", self.server.ca_file, "--token-file", self.server.token_file, *flags]
        self.driver = self.enter_context(processes.Program(argv))
        self.kubelet.wait_registered(DRIVER)
        self.server.wait_for(lambda: self.server.list("resourceslices"))
        self.claims = []
        self.callback(self._end_all)

    def capacity(self):
        """Of the first GPU, in bytes and percent."""
        (slice_,) = self.server.list("resourceslices")
        import quantity
        return {name: quantity.value(each["value"]) for name, each in slice_["spec"]["devices"][0]["capacity"].items()}

    def claim(self, name, config=None, **options):
        """With its devices, or None if they do not fit now. `config`: fields of VGpuConfig."""
        if config:
            options["parameters"] = {"apiVersion": f"{DRIVER}/v1alpha1", "kind": "VGpuConfig", **config}
        made = self.server.create("resourceclaims", self.scheduler.claim_of(name, **options))
        return self.allocate(made)

    def allocate(self, claim):
        return self.scheduler.allocate(self.server, claim, NODE, DRIVER)

    def prepare(self, claim):
        done = self.kubelet.prepare([claim])[claim["metadata"]["uid"]]
        expect(not done.error, f"claim {claim['metadata']['name']}: {done.error}")
        self.claims.append(claim)
        return claim

    def end(self, claim):
        """As when its last pod has ended."""
        self.kubelet.unprepare([claim])
        self.server.delete("resourceclaims", claim["metadata"]["name"], "default")
        self.claims.remove(claim)

    def _end_all(self):
        for claim in list(self.claims):
            with contextlib.suppress(Exception):
                self.end(claim)

    def vgpu(self, claim):
        return self.tessera.vgpu(f"default.{claim['metadata']['name']}.{claim['metadata']['uid']}")

    def specification(self, claim):
        return json.loads((self.cdi / f"tessera.dev-claim_{claim['metadata']['uid']}.json").read_text())

    def profile(self):
        """The seccomp profile of a node of ours."""
        base = pathlib.Path(os.environ.get("TESSERA_HW_SECCOMP", BASE_PROFILE))
        if not base.exists():
            raise Skipped(f"{base} is missing")
        return json.loads(self.bench.cli("cdi", "seccomp", "--base", base))

    def contain(self, claim, argv, seccomp=None):
        """Starts a container with the claim: its own PID, IPC, UTS and mount namespace, and the machine's files."""
        if not shutil.which("crun"):
            raise Skipped("crun is not installed")
        number = len(list(self.folder.glob("bundle-*")))
        bundle = self.folder / f"bundle-{number}"
        root = bundle / "rootfs"
        root.mkdir(parents=True)
        edits = self.specification(claim)
        config = configuration(argv, [edits["containerEdits"], edits["devices"][0]["containerEdits"]], seccomp,
                               kinds(self.bench.soft))
        (bundle / "config.json").write_text(json.dumps(config))
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", START, "sh", root, "--root", self.folder / "crun",
                   "--cgroup-manager=disabled", "run", "--bundle", bundle, f"hw-{os.getpid()}-{number}"]
        return self.enter_context(processes.Program(command, self.tessera.plain_environment()))


def kinds(soft):
    """Of namespaces. A soft GPU does not notice the end of a process that it cannot see."""
    return ("ipc", "uts", "mount") if soft else ("pid", "ipc", "uts", "mount")


def configuration(argv, edits, seccomp, namespaces):
    """config.json of the OCI runtime specification, with what CDI adds."""
    passed = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "TESSERA_SOFT") if key in os.environ}
    config = {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": [str(word) for word in argv], "cwd": "/", "noNewPrivileges": True,
                    "env": [*(f"{key}={value}" for key, value in passed.items())],
                    "capabilities": {kind: CAPABILITIES for kind in ("bounding", "effective", "permitted")}},
        "root": {"path": "rootfs"},
        "hostname": "pod",
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]}],
        "linux": {"namespaces": [{"type": kind} for kind in namespaces],
                  **({"seccomp": seccomp} if seccomp else {})},
        "hooks": {}}
    for edit in edits:
        config["process"]["env"] += edit.get("env", [])
        for mount in edit.get("mounts", []):
            config["mounts"].append({"destination": mount["containerPath"], "source": mount["hostPath"], "type": "bind",
                                     "options": ["rbind" if option == "bind" else option for option in mount["options"]]})
        for hook in edit.get("hooks", []):
            config["hooks"].setdefault(hook["hookName"], []).append({"path": hook["path"], "args": hook["args"]})
    return config
