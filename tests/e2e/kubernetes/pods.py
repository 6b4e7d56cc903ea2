"""Containers of a DaemonSet's pod, run by podman on a machine that is the test's alone."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, LIB, wait_for  # noqa: E402
from test_cdi import libraries_of  # noqa: E402

CLONE_NEWNS = 0x00020000
SOURCE = pathlib.Path(__file__).resolve().parents[3]
GROUPS = pathlib.Path("/sys/fs/cgroup")
PROGRAMS = ("tesserad", "tessera", "tessera-kubelet")


def why_not():
    """Why this process can have no folders of its own here; empty when it has got them: /run, /var/lib and /dev/shm."""
    if os.getuid() != 0:
        return "containers in a test need root"
    if not shutil.which("podman") or not shutil.which("busybox"):
        return "podman or busybox is not installed"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return "no mount namespace can be had here"
    script = """set -e; mount --make-rprivate /
        for folder in /run /var/lib /dev/shm; do mount -t tmpfs tmpfs $folder; done
        mkdir -p /var/lib/kubelet/pod-resources
        if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi"""  # crun takes no hybrid ones
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True).stderr.strip()


class Engine:
    """podman with all that it writes in `folder`, and an image: busybox, and what `make dist` has in these places."""

    def __init__(self, folder):
        self.folder, self.root = pathlib.Path(folder), pathlib.Path(folder, "root")
        for name in ("bin", "dev", "etc", "host", "lib64", "opt", "proc", "run", "sys", "tmp", "usr/local/bin", "var"):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/run").symlink_to("../run")
        shutil.copy(shutil.which("busybox"), self.root / "bin/busybox")
        for name in ("sh", "true"):
            (self.root / "bin" / name).symlink_to("busybox")
        for name in PROGRAMS:
            shutil.copy(BIN / name, self.root / "usr/local/bin")
        shutil.copytree(LIB / "tessera", self.root / "usr/local/lib/tessera", symlinks=True)
        profile = subprocess.run([SOURCE / "tools/flat_seccomp.py", "/usr/share/containers/seccomp.json"], capture_output=True, check=True)
        (self.root / "usr/local/share/tessera").mkdir(parents=True)
        (self.root / "usr/local/share/tessera/seccomp.json").write_bytes(profile.stdout)
        files = [path for path in (self.root / "usr/local").rglob("*") if path.is_file() and not path.is_symlink()]
        for library in libraries_of(*(path for path in files if path.suffix not in (".json", ".preload"))):
            place = self.root / library[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        self.groups = str(self.folder).replace("/", "-").replace("-", "/", 1)  # of control groups
        (self.folder / "containers.conf").write_text('[engine]\nlock_type = "file"\n')  # not in /dev/shm

    def words(self, name, *words):
        """A command that runs a container: `words` are podman's flags, "--", and the container's own command."""
        flags, command = words[:words.index("--")], words[words.index("--") + 1:]
        (self.folder / f"{name}.pid").unlink(missing_ok=True)
        return [str(word) for word in (
            "env", f"CONTAINERS_CONF={self.folder / 'containers.conf'}", "podman", *self.place(), "run", "--rm", "--name", name,
            "--network=host", f"--cgroup-parent={self.groups}", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096",
            f"--pidfile={self.folder / name}.pid", *flags, "--rootfs", self.root, *command)]

    def close(self):
        """When all containers have ended. podman may still be removing their control groups."""
        def gone():
            left = [*GROUPS.glob(self.groups[1:]), *GROUPS.glob(f"*{self.groups}")]
            for folder in left:
                if folder.parent.name == "unified":  # what crun takes for control groups is plain files there (why_not)
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    subprocess.run(["find", folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], stderr=subprocess.DEVNULL)
            return not left
        wait_for("the control groups to go", gone)

    def place(self):
        return ("--root", self.folder / "storage", "--runroot", self.folder / "state", "--tmpdir", self.folder / "tmp",
                "--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=file", "--runtime=crun")

    def has_begun(self, name):
        return bool(self._pid_text(name))

    def pid(self, name):
        wait_for(f"the container {name}", lambda: self.has_begun(name))
        return int(self._pid_text(name))

    def _pid_text(self, name):
        file = self.folder / f"{name}.pid"
        return file.read_text().strip() if file.exists() else ""


def words_of(pod, name, engine, node, account, server):
    """podman's flags, "--", and the command of a container of the pod. `account`: the folder of its service account."""
    (container,) = [each for each in [*pod["containers"], *pod["initContainers"]] if each["name"] == name]
    rights = container["securityContext"]
    words = [f"--user={rights['runAsUser']}", *(["--pid=host"] if pod["hostPID"] else [])]
    words += ["--read-only", "--read-only-tmpfs=false"] if rights.get("readOnlyRootFilesystem") else []
    words += ["--privileged"] if rights.get("privileged") else []
    words += ["--security-opt=no-new-privileges"] if rights.get("allowPrivilegeEscalation") is False else []
    words += [f"--cap-drop={each.lower()}" for each in rights.get("capabilities", {}).get("drop", [])]
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": server.port}
    for each in container.get("env", []):
        variables[each["name"]] = each.get("value", node)
    words += [f"--env={key}={value}" for key, value in variables.items()]
    volumes = {each["name"]: each for each in pod["volumes"]}
    for mount in container["volumeMounts"]:
        source = source_of(volumes[mount["name"]], engine, account)
        words.append(f"--volume={source}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}" if source
                     else f"--tmpfs={mount['mountPath']}")
    return [*words, "--", *container["command"], *container.get("args", [])]


def source_of(volume, engine, account):
    """The folder of this machine; None for one that is made anew."""
    if "hostPath" in volume:
        path = pathlib.Path(volume["hostPath"]["path"])
        if volume["hostPath"].get("type") == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        return path
    if "projected" in volume:
        return account
    if "emptyDir" in volume:
        return None
    folder = engine.folder / volume["configMap"]["name"]
    folder.mkdir(exist_ok=True)
    for name, text in engine.config[volume["configMap"]["name"]].items():
        (folder / name).write_text(text)
    return folder
