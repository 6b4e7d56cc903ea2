"""Containers: the CDI specification that `tessera cdi generate` writes, and podman with it.

There is no registry: the container's root is made from this machine's own files. All that podman writes lies in the
test's folder, and what it reads of /etc and /run is replaced in a mount namespace, so that the machine's is left alone.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import stat
import subprocess
import unittest

from harness import BIN, DEADLINE_S, MIB, SHIM, SOFT, TENANT, Lines, Shell, SoftGpuTest, Tenant, wait_for

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "containers.md"
NAMES = {"kind": r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?",
         "device": r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"}
EDITS = {"env", "deviceNodes", "mounts", "hooks"}  # what 0.3.0 has


def check_edits(edits):
    assert edits and set(edits) <= EDITS, edits
    for variable in edits.get("env", []):
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*", variable), variable
    for node in edits.get("deviceNodes", []):
        assert node["path"].startswith("/"), node
        assert set(node) <= {"path", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}, node
    for mount in edits.get("mounts", []):
        assert set(mount) <= {"hostPath", "containerPath", "options"}, mount  # "type" is 0.4.0's
        assert mount["hostPath"].startswith("/") and mount["containerPath"].startswith("/"), mount
        assert all(isinstance(option, str) for option in mount["options"]), mount


def check(spec):
    """The rules of CDI's SPEC.md and of the checks that engines make."""
    assert set(spec) == {"cdiVersion", "kind", "devices", "containerEdits"}, spec
    assert re.fullmatch(NAMES["kind"], spec["kind"]), spec["kind"]
    names = [device["name"] for device in spec["devices"]]
    assert names and len(set(names)) == len(names), names
    for device in spec["devices"]:
        assert set(device) == {"name", "containerEdits"}, device
        assert re.fullmatch(NAMES["device"], device["name"]), device
        check_edits(device["containerEdits"])
    check_edits(spec["containerEdits"])
    assert spec["cdiVersion"] == ("0.5.0" if any(name[0].isdigit() for name in names) else "0.3.0"), spec["cdiVersion"]


class Specification(SoftGpuTest):
    SPEC = "2x4GiB"

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def generate(self, *words, check_status=True):
        return self.tessera("cdi", "generate", *words, check=check_status)

    def refused(self, *words):
        """The one line that it says."""
        done = self.generate(*words, check_status=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done)
        return done.stderr

    def test_each_vgpu_is_a_device(self):
        self.create("team-a", gpu="0")
        self.create("7b", gpu="1")
        spec = json.loads(self.generate().stdout)
        check(spec)
        self.assertEqual({device["name"] for device in spec["devices"]}, {"team-a", "7b"})
        gpus = {gpu["index"]: gpu["uuid"] for gpu in self.json("gpus")["gpus"]}
        for device in spec["devices"]:
            self.assertIn(f"TESSERA_VGPU={device['name']}", device["containerEdits"]["env"])
            gpu = gpus[0 if device["name"] == "team-a" else 1]
            self.assertIn(f"CUDA_VISIBLE_DEVICES={gpu}", device["containerEdits"]["env"])
        for mount in spec["containerEdits"]["mounts"]:
            self.assertTrue(os.path.exists(mount["hostPath"]), mount)
        only = json.loads(self.generate("--vgpu", "team-a").stdout)
        check(only)
        self.assertEqual([device["name"] for device in only["devices"]], ["team-a"])

    def test_containers_are_given_the_programs_sockets_alone(self):
        self.create("team-a")
        mounts = {m["containerPath"]: m for m in json.loads(self.generate().stdout)["containerEdits"]["mounts"]}
        folder = pathlib.Path(mounts["/run/tessera"]["hostPath"])
        self.assertEqual(sorted(os.listdir(folder)), ["client.sock", "requests.sock"])
        self.assertTrue(all(stat.S_ISSOCK(each.stat().st_mode) for each in folder.iterdir()))
        for path in ("/run/tessera", "/opt/tessera/lib"):
            self.assertIn("ro", mounts[path]["options"])

    def test_names_that_cdi_does_not_know_are_left_out(self):
        self.create("-odd_")
        self.create("even")
        done = self.generate()
        self.assertEqual([device["name"] for device in json.loads(done.stdout)["devices"]], ["even"])
        self.assertIn("'-odd_'", done.stderr)
        self.assertIn("'-odd_'", self.refused("--vgpu=-odd_"))

    def test_what_cannot_be_described_is_said(self):
        self.assertIn("tessera vgpu create", self.refused())
        self.create("team-a")
        self.assertIn("nobody", self.refused("--vgpu", "nobody"))
        self.assertIn("soft", self.refused("--driver"))
        self.assertIn("TESSERA_SOFT_NAME",
                      self.tessera("cdi", "generate", env={"TESSERA_SOFT_NAME": "another"}, check=False).stderr)
        self.stop_daemon()
        self.assertIn(str(self.run_dir), self.refused())

    def test_a_file_is_replaced_whole_or_stays(self):
        self.create("team-a")
        out = self.run_dir / "tessera.json"
        out.write_text("before")
        before = out.stat().st_ino
        self.generate("--output", out)
        check(json.loads(out.read_text()))
        self.assertNotEqual(out.stat().st_ino, before)
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o644)
        self.assertFalse((self.run_dir / "tessera.json.new").exists())

    def test_what_cannot_be_written_is_said(self):
        self.create("team-a")
        missing = self.run_dir / "missing" / "tessera.json"
        self.assertIn(str(missing.parent), self.refused("--output", missing))
        self.assertIn("is a directory", self.refused("--output", self.run_dir))
        self.assertIn("No space left", self.refused("--output", "/dev/full"))
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    @unittest.skipIf(os.geteuid() != 0, "mounting a full disk needs root")
    def test_a_full_disk_leaves_the_old_file(self):
        self.create("team-a")
        disk = self.run_dir / "disk"
        disk.mkdir()
        script = ('mount --make-rprivate / && mount -t tmpfs -o size=4k,nr_inodes=8 tmpfs "$1" && '
                  'echo before > "$1/tessera.json" && shift && { "$@"; status=$?; cat "$OUT"; exit $status; }')
        out = disk / "tessera.json"
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", disk, BIN / "tessera", "cdi", "generate",
                               "--output", out], env={**self.env, "OUT": str(out)}, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"no mount namespace can be had here: {done.stderr.strip()}")
        self.assertEqual((done.returncode, done.stdout), (1, "before\n"), done.stderr)
        self.assertIn("No space left", done.stderr)
        self.assertIn("--output", done.stderr)


@unittest.skipIf(os.geteuid() != 0, "programs of several users need root")
class UserNamespace(SoftGpuTest):
    OWNER, OTHER = 54321, 54322

    def as_user(self, uid, *command, **options):
        words = ["setpriv", f"--reuid={uid}", "--regid=65534", "--clear-groups", "--", *map(str, command)]
        return subprocess.run(words, env={**self.env, **options}, capture_output=True, text=True, timeout=DEADLINE_S)

    def test_its_root_is_its_user_outside(self):
        self.run_dir.chmod(0o755)
        if self.as_user(self.OTHER, "unshare", "--map-root-user", "true").returncode != 0:
            self.skipTest("users may make no user namespace here")
        self.start_daemon()
        build = self.build_for_everybody()
        lib = build / "lib" / "tessera"
        made = self.as_user(self.OWNER, build / "bin" / "tessera", "vgpu", "create", "team-a")
        self.assertEqual(made.returncode, 0, made.stderr)
        preload = {"LD_PRELOAD": str(lib / SHIM.name), "TESSERA_VGPU": "team-a",
                   "TESSERA_REAL_LIBCUDA": str(lib / "soft" / SOFT.name), "TESSERA_RUN_DIR": str(self.run_dir / "programs")}
        done = self.as_user(self.OTHER, "unshare", "--map-root-user", "sh", "-c", f"id -u; {lib / TENANT.name} --kernels 1",
                            **preload)
        self.assertEqual(done.stdout.splitlines()[0], "0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there is no vGPU team-a", done.stderr)


# Where podman finds what is the test's. hybrid: crun takes no machine with cgroup v1 and controllers in v2.
PLACE = """
set -e
mount --make-rprivate /
mount --bind "$TEST/etc" /etc
mount -t tmpfs tmpfs /run
mountpoint -q /sys/fs/cgroup/unified && umount /sys/fs/cgroup/unified
"""

# `podman run IMAGE` of the docs, with the root that is there instead of an image, and in what may be a container itself.
# runc always makes control groups: in a folder of the test's.
PODMAN = """#!/bin/bash
if [ "$RUNTIME" = runc ]; then groups=(--cgroup-parent "/${{TEST//\\//-}}"); else groups=(--cgroups=disabled); fi
words=(--runtime "$RUNTIME")
for word; do
  case $word in
    run) words+=(run --network none "${{groups[@]}}" --ulimit nofile=1024:1024 --ulimit nproc=4096:4096) ;;
    IMAGE) words+=(--rootfs "$TEST/root") ;;
    *) words+=("$word") ;;
  esac
done
# In /run, which each of them has anew, podman would take what the others run for what was there before a boot.
exec {podman} --root "$TEST/storage" --runroot "$TEST/state" --tmpdir "$TEST/tmp" --storage-driver vfs --cgroup-manager cgroupfs \\
  --events-backend file "${{words[@]}}"
"""


def libraries_of(*files):
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=True)
    return sorted(set(re.findall(r"(/lib\S*/[^\s:]+) \(0x", done.stdout)))


@unittest.skipIf(os.geteuid() != 0, "containers in a test need root")
@unittest.skipUnless(shutil.which("podman") and shutil.which("busybox"), "podman or busybox is not installed")
class Container(SoftGpuTest):
    SPEC = "1x4GiB,speed=4M"
    FLAGS = ("--rm", "--device", "tessera.dev/vgpu=team-a")

    def setUp(self):
        super().setUp()
        self.env["RUNTIME"] = "crun"
        self.env["TEST"] = str(self.run_dir / "test")
        self.test = pathlib.Path(self.env["TEST"])
        self.make_root()
        shutil.copytree("/etc", self.test / "etc", symlinks=True)
        (self.test / "etc" / "cdi").mkdir(exist_ok=True)
        (self.test / "etc" / "containers").mkdir(exist_ok=True)
        # Else they would be in /dev/shm, which is the machine's, as soft GPUs are there.
        (self.test / "etc" / "containers" / "containers.conf").write_text('[engine]\nlock_type = "file"\n')
        (self.test / "bin").mkdir()
        podman = self.test / "bin" / "podman"
        podman.write_text(PODMAN.format(podman=shutil.which("podman")))
        podman.chmod(0o755)
        self.env["PATH"] = f"{self.test / 'bin'}:{BIN}:{self.env['PATH']}"
        self.need("crun")
        self.start_daemon()

    def need(self, runtime):
        """Containers are run by it from now on."""
        self.env["RUNTIME"] = runtime
        probe = self.place("podman run --rm IMAGE true")
        if probe.returncode != 0:
            self.skipTest(f"podman can run no container with {runtime} here: {probe.stderr.strip()}")

    def tearDown(self):
        for file in self.test.glob("*.pid"):  # containers are no children of ours
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (ValueError, ProcessLookupError):
                pass
        wait_for("podman to have cleaned up", lambda: not self.engine_works())
        groups = str(self.test).replace("/", "-")
        for folder in [*pathlib.Path("/sys/fs/cgroup").glob(groups), *pathlib.Path("/sys/fs/cgroup").glob(f"*/{groups}")]:
            subprocess.run(["find", folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=True)
        super().tearDown()

    def engine_works(self):
        """Whether podman or what watches over a container for it still runs; both are told the test's folder."""
        for words in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.test).encode() in words.read_bytes():
                    return True
            except OSError:
                pass  # it has just ended
        return False

    def make_root(self):
        """A container's root: busybox, driver_shell, and the libraries of what runs in it."""
        root = self.test / "root"
        for folder in ("bin", "dev", "etc", "lib64", "opt", "proc", "run", "sys", "tmp"):
            (root / folder).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
        for name in ("sh", "true", "ls", "tr", "grep", "find", "touch"):
            (root / "bin" / name).symlink_to("busybox")
        shutil.copy(BIN / "driver_shell", root / "bin")
        for library in libraries_of(TENANT, SHIM, SOFT, BIN / "driver_shell", BIN / "gate_churn"):
            place = root / library[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)

    def place(self, script):
        """Runs a script of the docs' kind to its end."""
        return subprocess.run(["unshare", "--mount", "bash", "-c", PLACE + script], env=self.env, capture_output=True,
                              text=True, timeout=DEADLINE_S)

    def team(self, **fields):
        self.create("team-a", **fields)
        self.tessera("cdi", "generate", "--output", self.test / "etc" / "cdi" / "tessera.json")

    def contain(self, *command, name="one", **options):
        """Starts a container with the vGPU team-a."""
        words = ["podman", "run", "-i", *self.FLAGS, "--name", name, "--pidfile", self.test / f"{name}.pid", "IMAGE",
                 *command]
        return self.spawn("unshare", "--mount", "bash", "-c", PLACE + "exec " + shlex.join(map(str, words)), **options)

    def tenant(self, *flags, **options):
        return Tenant(self.contain("/opt/tessera/lib/tessera-tenant", *flags, **options))

    def output_of(self, *command):
        out, err = self.contain(*command).communicate(timeout=DEADLINE_S)
        return out + err

    def test_a_program_sees_its_vgpu_and_is_seen(self):
        self.team(memory_limit="512M")
        shell = Shell(self.contain("/bin/driver_shell", stdin=subprocess.PIPE))
        shell.ok("init")
        shell.ok("context")
        self.assertEqual(shell.ok("info")["device_total"], 512 * MIB)
        (seen,) = self.json("ps")["processes"]
        self.assertEqual((seen["vgpu"], seen["name"]), ("team-a", "driver_shell"))
        # Its number on the machine, where in the container it is 1.
        self.assertEqual(seen["pid"], int((self.test / "one.pid").read_text()))
        status = pathlib.Path(f"/proc/{seen['pid']}/status").read_text()
        self.assertEqual(re.search(r"NSpid:.*\t(\d+)", status)[1], "1")
        self.assertEqual(self.current("team-a"), self.CONTEXT_BYTES)
        shell.end()
        wait_for("the program to be gone", lambda: not self.managed())

    def test_beyond_its_memory_it_is_out_of_memory(self):
        self.team(memory_limit="512M", memory_max="512M")
        events = self.events(self.contain("/opt/tessera/lib/tessera-tenant", "--grab", "--kernels", "1"))
        (oom,) = [event for event in events if event["event"] == "oom"]
        self.assertLessEqual(oom["granted_bytes"], 512 * MIB - self.CONTEXT_BYTES)
        self.assertGreater(oom["granted_bytes"], 256 * MIB)
        self.assertEqual(self.vgpu("team-a")["oom_events"], 1)

    def test_two_containers_share_the_gpu(self):
        """Both are process 1 of their own."""
        self.team()
        one, two = self.tenant(name="one"), self.tenant(name="two")
        one.until("ready")
        two.until("ready")
        for tenant in (one, two):
            tenant.makes_progress(3)
        self.assertEqual({process["pid"] for process in self.managed()},
                         {int((self.test / f"{name}.pid").read_text()) for name in ("one", "two")})
        self.tessera("freeze", "team-a")
        self.tessera("thaw", "team-a")
        for tenant in (one, two):
            tenant.makes_progress(3)
            tenant.finish()

    def test_what_is_not_a_programs_is_not_there(self):
        self.team()
        found = self.output_of("find", "/run", "/opt", "/tmp", "/dev", "(", "-type", "s", "-o", "-name", "state.json", ")")
        self.assertEqual(sorted(found.split()), ["/run/tessera/client.sock", "/run/tessera/requests.sock"])
        self.assertIn("Read-only", self.output_of("touch", "/run/tessera/api.sock"))
        self.assertIn("Read-only", self.output_of("touch", "/opt/tessera/lib/libcuda.so.1"))

    def test_behind_the_kernel_gate(self):
        self.behind_the_kernel_gate()

    @unittest.skipUnless(shutil.which("musl-gcc"), "musl-tools is not installed")
    def test_a_program_of_another_c_library_starts(self):
        """The shims are glibc's, and no other loader may stumble over them."""
        self.team()
        source = self.test / "hello.c"
        source.write_text('#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n')
        program, loader = self.test / "root" / "bin" / "hello", self.test / "root" / "lib" / "ld-musl-x86_64.so.1"
        subprocess.run(["musl-gcc", "-o", program, source], check=True, timeout=DEADLINE_S)
        loader.parent.mkdir(exist_ok=True)
        shutil.copy("/usr/lib/x86_64-linux-musl/libc.so", loader)
        self.assertEqual(self.output_of("/bin/hello"), "hello\n")

    def test_one_profile_for_all_containers_of_crun(self):
        self.one_profile_for_all_containers()

    @unittest.skipUnless(shutil.which("runc"), "runc is not installed")
    def test_one_profile_for_all_containers_of_runc(self):
        self.need("runc")
        self.one_profile_for_all_containers()

    def one_profile_for_all_containers(self):
        """The daemon finds out the container's vGPU. Without the profile the container does not start."""
        self.team(memory_limit="4M", memory_max="4M")
        self.tessera("cdi", "generate", "--require-gate", "--output", self.test / "etc" / "cdi" / "tessera.json")
        said = "tessera-require-gate" if self.env["RUNTIME"] == "crun" else "is for containers behind the kernel gate only"
        self.assertIn(said, self.output_of("/bin/true"))
        self.behind_the_kernel_gate_with("cdi", "seccomp")

    def behind_the_kernel_gate(self):
        """By the profile that the docs name: the daemon counts what the container asks the driver for."""
        self.team(memory_limit="4M", memory_max="4M")
        self.behind_the_kernel_gate_with("cdi", "seccomp", "--vgpu", "team-a")

    def behind_the_kernel_gate_with(self, *command):
        profile = self.test / "profile.json"
        self.tessera(*command, "--output", profile)
        shutil.copy(BIN / "gate_churn", self.test / "root" / "bin")
        self.FLAGS = (*self.FLAGS, "--security-opt", f"seccomp={profile}")
        child = self.contain("/bin/gate_churn", "2", stdin=subprocess.PIPE)
        lines = Lines(child)
        for _ in range(3):
            line = lines.next()
            if line is None and "seccomp" in (said := child.stderr.read()):
                self.skipTest(f"seccomp user notification is not permitted here: {said}")
            self.assertTrue(line and line.isdecimal(), line)
        (process,) = self.managed()
        self.assertEqual((process["pid"], process["vgpu"], process["enforce"]),
                         (int((self.test / "one.pid").read_text()), "team-a", "kernel"))
        child.stdin.close()
        child.stdin = None
        self.assertEqual(child.wait(DEADLINE_S), 0)

    def test_it_finds_the_next_daemon(self):
        self.team()
        tenant = self.tenant()
        tenant.until("ready")
        (before,) = self.managed()
        self.stop_daemon(signal.SIGKILL)
        self.start_daemon()
        wait_for("the program to be back", self.managed)
        (after,) = self.managed()
        self.assertEqual((before["pid"], before["vgpu"]), (after["pid"], after["vgpu"]))
        tenant.makes_progress()
        tenant.finish()

    def test_commands_of_the_docs(self):
        blocks = re.findall(r"<!-- tests/e2e/test_cdi.py runs this -->\n```\n(.*?)```", DOCS.read_text(), re.S)
        self.assertEqual(len(blocks), 2)
        script = re.sub(r"^# ", "", "".join(blocks), flags=re.M)
        done = self.place(script)
        self.assertEqual(done.returncode, 0, done.stderr)
        done_events = [json.loads(line) for line in done.stdout.splitlines() if '"done"' in line]
        self.assertEqual([event["verified"] for event in done_events], [True, True], done.stdout)
        self.assertEqual([vgpu["name"] for vgpu in self.json("vgpu", "ls")["vgpus"]], ["team-a"])
        check(json.loads((self.test / "etc" / "cdi" / "tessera.json").read_text()))


if __name__ == "__main__":
    unittest.main()
