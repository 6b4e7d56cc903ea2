"""The RPM packages: what lies where, what they ask of a system, that it works from there, and what their scriptlets do."""
import os
import pathlib
import re
import subprocess
import sys
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, wait_for  # noqa: E402
from machine import Machine, why_not  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tessera", "tessera-kubelet", "tessera-libs", "tessera-shim", "tesserad")
UNITS = ("tesserad-api.socket", "tesserad.service", "tesserad.socket")
KUBELET_UNIT = "tessera-kubelet.service"
OLDEST_GLIBC = (2, 34)  # of RHEL 9
# What every system has, by the names that RPM gives it.
OF_SYSTEMS = re.compile(r"rpmlib\(.*\).*|rtld\(GNU_HASH\)|/bin/(ba)?sh|/usr/bin/getent|/usr/sbin/groupadd|libgcc_s\.so\.1\((GCC_[34][0-9.]*)?\)\(64bit\)|"
                        r"(ld-linux-x86-64\.so\.2|lib(c|m)\.so\.6|lib(dl|rt)\.so\.[12]|libpthread\.so\.0)\((GLIBC_([0-9.]+))?\)\(64bit\)")
FILES = {
    "tessera": ("/usr/bin/tessera", "/usr/lib/tessera/soft/libcuda.so.1", "/usr/lib/tessera/tessera-tenant", "/usr/share/man/man1/tessera.1.gz",
                "/usr/share/bash-completion/completions/tessera", "/usr/share/doc/tessera/docs/install.md", "/usr/share/tessera/gpus/h200.toml"),
    "tesserad": ("/usr/bin/tesserad", "/usr/lib/tessera/tessera-mover", "/usr/lib/tessera/tessera-checkpoint", "/usr/lib/tessera/tessera-gate-holder", "/usr/lib/tessera/tessera-swap-holder",
                 "/usr/lib/tessera/tessera-channel-test", "/usr/lib/sysusers.d/tessera.conf", "/usr/share/man/man8/tesserad.8.gz",
                 "/usr/share/doc/tesserad/tesserad.toml", "/etc/tessera", *(f"/usr/lib/systemd/system/{unit}" for unit in UNITS)),
    "tessera-kubelet": ("/usr/bin/tessera-kubelet", f"/usr/lib/systemd/system/{KUBELET_UNIT}", "/usr/share/man/man8/tessera-kubelet.8.gz",
                        "/usr/share/doc/tessera-kubelet/tessera-kubelet.env"),
    "tessera-shim": ("/usr/lib/tessera/libcuda.so.1", "/usr/lib/tessera/libcuda.so", "/usr/lib/tessera/libnvidia-ml.so.1"),
    "tessera-libs": ("/usr/lib/tessera/deps/libtessera-glibc.so.1", "/usr/lib/tessera/deps/libstdc++.so.6", "/usr/share/tessera/licenses/libstdc++6", "/usr/share/tessera/licenses/libxxhash-dev"),
}


def setUpModule():
    if reason := why_not():
        raise unittest.SkipTest(reason)
    built = subprocess.run([SOURCE / "tools" / "rpm.sh"], capture_output=True, text=True)
    if built.returncode != 0:
        raise AssertionError(f"tools/rpm.sh: {built.stdout}{built.stderr}")


def rpms():
    return sorted((BUILD.parent / "rpm").glob("*.rpm"))


def asked(query):
    """The lines that rpm answers, by package."""
    answers = {}
    for path in rpms():
        shown = subprocess.run(["rpm", "-qp", "--qf", "%{NAME}\n", query, path], capture_output=True, text=True, check=True)
        name, *lines = shown.stdout.splitlines()
        answers[name] = lines
    return answers


def rpm(machine, *words):
    """Debian's rpm knows no package of its own system, which therefore seems to lack everything."""
    folder = machine.path / "tmp/rpms"
    folder.mkdir(exist_ok=True)
    for path in rpms():
        (folder / path.name).write_bytes(path.read_bytes())
    return machine.run("rpm", "--force-debian", "--nodeps", "--dbpath", "/tmp/rpm-database", *words)


def install(machine, how="-i"):
    return rpm(machine, how, *(["--force"] if how == "-U" else []), *(f"/tmp/rpms/{path.name}" for path in rpms()))


class Contents(unittest.TestCase):
    def test_everything_is_in_its_package(self):
        listed = asked("-l")
        self.assertEqual(tuple(sorted(listed)), PACKAGES)
        for package, files in FILES.items():
            for path in files:
                holders = [name for name in listed if path in listed[name]]
                # Two packages may have a folder.
                self.assertIn(package, holders, path)
                self.assertTrue(holders == [package] or path == "/etc/tessera", f"{path}: {holders}")
        everything = {path for paths in listed.values() for path in paths}
        self.assertNotIn("/usr/lib/tessera/tessera-swap-churn", everything)
        self.assertEqual({path for path in everything if path.startswith("/etc/")}, {"/etc/tessera"}, "the administrator's files are nobody else's")

    def test_they_ask_for_nothing_that_rhel_9_lacks(self):
        wanted = asked("--requires")
        for package, lines in wanted.items():
            self.assertTrue(any(line.startswith("libc.so.6(GLIBC_") for line in lines), f"{package}: nobody looked at its programs")
            for line in lines:
                if line.startswith("tessera"):
                    continue
                known = OF_SYSTEMS.fullmatch(line)
                self.assertTrue(known, f"{package}: {line}")
                if version := known.group(7):
                    self.assertLessEqual(tuple(map(int, version.split("."))), OLDEST_GLIBC, f"{package}: {line}")

    def test_they_offer_no_library(self):
        """No other package may get our libcuda.so.1, or a library of ours in place of the system's."""
        for package, lines in asked("--provides").items():
            self.assertEqual([line for line in lines if not line.startswith(package)], [])

    def test_one_version_for_all(self):
        wanted = asked("--requires")
        version = subprocess.run(["rpm", "-qp", "--qf", "%{VERSION}-%{RELEASE}", rpms()[0]], capture_output=True, text=True, check=True).stdout
        for package, needed in (("tesserad", "tessera"), ("tessera", "tessera-shim"), ("tessera", "tessera-libs"), ("tessera-kubelet", "tessera-libs")):
            self.assertIn(f"{needed} = {version}", wanted[package])


class Installed(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)

    def note_orders(self):
        """systemctl only notes what it is asked for."""
        systemctl = self.machine.path / "usr/bin/systemctl"
        systemctl.unlink(missing_ok=True)
        systemctl.write_text('#!/bin/sh\necho "$*" >>/tmp/asked\n')
        systemctl.chmod(0o755)
        (self.machine.path / "run/systemd/system").mkdir(parents=True)

    def orders(self):
        """Since the last call: the orders with their units."""
        path = self.machine.path / "tmp/asked"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        words = [[word for word in line.split() if word != "--no-reload"] for line in lines]
        return sorted((" ".join(word for word in order if word[0] == "-" or "." not in word), sorted(word for word in order if "." in word)) for order in words)

    def test_programs_run(self):
        install(self.machine)
        name = uuid.uuid4().hex[:12]
        self.addCleanup(lambda: [path.unlink() for path in pathlib.Path("/dev/shm").glob(f"*{name}*")])
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TESSERA_RUN_DIR": "/tmp/run", "TESSERA_SOFT_NAME": name, "HOME": "/tmp"}
        ran = self.machine.run("/usr/bin/tessera", "run", "--soft", "--memory", "1G", "--", "/usr/lib/tessera/tessera-tenant", "--seconds", "0.2", env=env)
        self.assertIn('"verified":true', ran.stdout.replace(" ", ""))
        daemon = (self.machine.path / "tmp/run/tesserad.lock").read_text().strip()
        wait_for("the daemon's end", lambda: not os.path.exists(f"/proc/{daemon}"))
        self.assertTrue(self.machine.run("/usr/bin/tessera-kubelet", "--version", env=env).stdout)
        self.machine.run("getent", "group", "tessera")
        verified = self.machine.run("systemd-analyze", "verify", *(f"/usr/lib/systemd/system/{unit}" for unit in (*UNITS, KUBELET_UNIT)))
        self.assertEqual([line for line in verified.stderr.splitlines() if "tesser" in line], [])

    def test_what_systemd_is_told(self):
        """A new node starts what its presets say; an upgrade restarts what runs, and leaves the sockets alone."""
        self.note_orders()
        before = self.machine.changes()
        install(self.machine)
        self.assertEqual(self.orders(), [("preset", [KUBELET_UNIT]), ("preset", list(UNITS))])
        (self.machine.path / "etc/tessera/tesserad.toml").write_text("")
        install(self.machine, "-U")
        self.assertEqual(self.orders(), [("daemon-reload", []), ("daemon-reload", []), ("try-restart", [KUBELET_UNIT]), ("try-restart", ["tesserad.service"])])
        # One that others need may be the first to go.
        rpm(self.machine, "-e", "tessera-libs", "tessera-shim")
        rpm(self.machine, "-e", "tessera-kubelet", "tessera", "tesserad")
        self.assertEqual(self.orders(), [("disable --now", [KUBELET_UNIT]), ("disable --now", list(UNITS))])
        left = {path for path in self.machine.changes() - before if not path.startswith(("/etc/group", "/etc/gshadow", "/etc/.pwd.lock", "/var/cache/"))}
        self.assertEqual(left - {"/etc/tessera"}, {"/etc/tessera/tesserad.toml"})


if __name__ == "__main__":
    unittest.main()
