"""The Debian packages: what lies where, that it works from there, and that nothing stays."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, wait_for  # noqa: E402
from machine import Machine, why_not  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("tessera-shim", "tessera", "tesserad", "tessera-kubelet")
UNITS = ("tesserad.service", "tesserad.socket", "tesserad-api.socket")
KUBELET_UNIT = "tessera-kubelet.service"
# Records that dpkg and sysusers keep.
BOOKS = ("/var/lib/dpkg/", "/var/log/", "/var/cache/", "/etc/group", "/etc/gshadow", "/etc/.pwd.lock", "/etc/ld.so.cache")


def setUpModule():
    if reason := why_not():
        raise unittest.SkipTest(reason)
    built = subprocess.run([SOURCE / "tools" / "deb.sh"], capture_output=True, text=True)
    if built.returncode != 0:
        raise AssertionError(f"tools/deb.sh: {built.stdout}{built.stderr}")


def debs():
    return sorted((BUILD.parent / "deb").glob("*.deb"))


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine()
        cls.addClassCleanup(cls.machine.close)
        install(cls.machine)
        name = uuid.uuid4().hex[:12]
        cls.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TESSERA_RUN_DIR": "/tmp/run", "TESSERA_SOFT_NAME": name, "HOME": "/tmp"}
        cls.addClassCleanup(lambda: [path.unlink() for path in pathlib.Path("/dev/shm").glob(f"*{name}*")])

    def exists(self, path):
        return os.path.lexists(self.machine.path / path.lstrip("/"))

    def test_everything_is_in_its_place(self):
        for path in ("/usr/bin/tessera", "/usr/bin/tesserad", "/usr/lib/tessera/libcuda.so.1",
                     "/usr/lib/tessera/libnvidia-ml.so.1", "/usr/lib/tessera/soft/libcuda.so.1",
                     "/usr/lib/tessera/tessera-mover", "/usr/lib/tessera/tessera-checkpoint", "/usr/lib/tessera/tessera-gate-holder", "/usr/lib/tessera/tessera-swap-holder",
                     "/usr/lib/tessera/tessera-channel-test", "/usr/lib/tessera/tessera-tenant", "/usr/share/bash-completion/completions/tessera",
                     "/usr/share/doc/tesserad/examples/tesserad.toml", "/etc/tessera", "/usr/bin/tessera-kubelet", "/usr/share/tessera/gpus/h200.toml",
                     "/usr/share/doc/tessera-kubelet/examples/tessera-kubelet.env"):
            self.assertTrue(self.exists(path), path)
        for name in ("tesserad.toml", "tessera-kubelet.env"):
            self.assertFalse(self.exists(f"/etc/tessera/{name}"), "the administrator's file is nobody else's")

    def test_one_version_for_all(self):
        for package, needed in (("tesserad", "tessera"), ("tessera", "tessera-shim")):
            shown = self.machine.run("dpkg-query", "-W", "-f=${Version}\n${Depends}", package).stdout
            version, depends = shown.split("\n")
            self.assertIn(f"{needed} (= {version})", depends.split(", "))

    def test_the_linker_does_not_see_our_libcuda(self):
        self.machine.run("ldconfig")
        self.assertNotIn("/usr/lib/tessera", self.machine.run("ldconfig", "-p").stdout)

    def test_lintian_has_nothing_to_say(self):
        said = subprocess.run(["lintian", "--fail-on", "error,warning", *(BUILD.parent / "deb").glob("*.changes")],
                              capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stdout), (0, ""))

    def test_units_are_right(self):
        verified = self.machine.run("systemd-analyze", "verify", *(f"/lib/systemd/system/{unit}" for unit in (*UNITS, KUBELET_UNIT)))
        self.assertEqual([line for line in verified.stderr.splitlines() if "tesser" in line], [])
        for unit in UNITS:
            self.assertEqual(self.machine.run("systemctl", "--root=/", "is-enabled", unit).stdout, "enabled\n")
        kubelet = self.machine.run("systemctl", "--root=/", "is-enabled", KUBELET_UNIT, check=False).stdout
        self.assertEqual(kubelet, "disabled\n", "no node is one of Kubernetes before somebody says so")

    def test_sockets_stop_together(self):
        """One by one, programs that look for the daemon start it by the one that is left."""
        for socket, other in (UNITS[1:], UNITS[:0:-1]):
            unit = (self.machine.path / "lib/systemd/system" / socket).read_text()
            self.assertIn(f"\nPartOf={other}\n", unit)

    def test_the_group_is_there(self):
        self.machine.run("getent", "group", "tessera")

    def test_manual_pages_are_right(self):
        pages = [line for package in PACKAGES for line in self.machine.run("dpkg", "-L", package).stdout.splitlines()
                 if line.startswith("/usr/share/man/") and line.endswith(".gz")]
        self.assertIn("/usr/share/man/man1/tessera.1.gz", pages)
        for page in pages:
            shown = self.machine.run("man", "--warnings", "-l", page, env={**os.environ, "LC_ALL": "C.UTF-8"})
            self.assertEqual(shown.stderr, "", page)
            self.assertIn("NAME", shown.stdout)

    def test_programs_run(self):
        self.assertTrue(self.machine.run("/usr/bin/tessera", "--version", env=self.env).stdout)
        ran = self.machine.run("/usr/bin/tessera", "run", "--soft", "--memory", "1G", "--", "/usr/lib/tessera/tessera-tenant",
                               "--seconds", "0.2", env=self.env)
        self.assertIn('"verified":true', ran.stdout.replace(" ", ""))
        daemon = (self.machine.path / "tmp/run/tesserad.lock").read_text().strip()
        wait_for("the daemon's end", lambda: not os.path.exists(f"/proc/{daemon}"))

    def test_the_example_is_every_key_with_its_default(self):
        table = (SOURCE / "docs" / "reference" / "config.md").read_text().split("\n## ")[0]
        documented = set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE))
        example = self.machine.path / "usr/share/doc/tesserad/examples/tesserad.toml"
        keys, section, lines = set(), "", []
        for line in example.read_text().splitlines():
            if line.startswith("["):
                section = line[1:-1]
            elif " = " in line:
                line = line.removeprefix("# ")
                if "." not in section:  # the table has no sections that have names of their own
                    keys.add(f"{section}.{line.split(' = ')[0]}")
                if '= ""' in line:  # that there is none is not always a value
                    continue
            lines.append(line)
        self.assertEqual(keys, documented)
        (self.machine.path / "etc/tessera/tesserad.toml").write_text("\n".join(lines))
        self.addCleanup((self.machine.path / "etc/tessera/tesserad.toml").unlink)
        daemon = subprocess.Popen(self.machine.command("/usr/bin/tesserad", "--soft", "--run-dir", "/tmp/run"), env=self.env,
                                  stderr=subprocess.PIPE, text=True)
        answers = self.machine.command("/usr/bin/tessera", "ps")
        try:
            wait_for("the daemon", lambda: daemon.poll() is not None or
                     subprocess.run(answers, env=self.env, capture_output=True).returncode == 0)
        finally:
            daemon.send_signal(signal.SIGTERM)
            said = daemon.communicate()[1]
        self.assertEqual(daemon.returncode, 0, said)


class Leaving(unittest.TestCase):
    """The maintainer scripts, on a machine whose systemctl notes what it is asked for."""

    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)
        systemctl = self.machine.path / "bin/systemctl"
        systemctl.unlink()
        systemctl.write_text('#!/bin/sh\ncase "$*" in *is-enabled*) echo enabled ;; *) echo "$*" >>/tmp/asked ;; esac\n')
        systemctl.chmod(0o755)
        # Images of containers forbid packages to start anything.
        (self.machine.path / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        (self.machine.path / "run/systemd/system").mkdir(parents=True)

    def asked(self):
        """Orders since the last call, without questions."""
        path = self.machine.path / "tmp/asked"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        words = [[word for word in line.split() if not word.startswith("-")] for line in lines]
        return [(order[0], sorted(order[1:])) for order in words if order[0] in ("start", "stop", "restart", "try-restart")]

    def test_an_upgrade_restarts_the_daemon_once_and_stops_nothing(self):
        install(self.machine)
        self.assertEqual(self.asked(), [("start", sorted(UNITS))])
        install(self.machine)
        self.assertEqual(sorted(self.asked()), [("restart", ["tesserad.service"]), ("start", sorted(UNITS)), ("try-restart", [KUBELET_UNIT])])

    def test_nothing_stays(self):
        before = self.machine.changes()
        install(self.machine)
        for path in ("run/tessera/fs", "var/lib/tessera"):
            (self.machine.path / path).mkdir(parents=True)
        (self.machine.path / "run/tessera/state.json").write_text("{}")
        (self.machine.path / "var/lib/tessera/swap").write_text("")
        for name in ("tesserad.toml", "tessera-kubelet.env"):
            (self.machine.path / "etc/tessera" / name).write_text("")
        self.asked()
        self.machine.run("dpkg", "-r", *PACKAGES)
        self.assertEqual(sorted(self.asked()), [("stop", [KUBELET_UNIT]), ("stop", sorted(UNITS))])
        self.assertTrue((self.machine.path / "etc/tessera/tesserad.toml").exists(), "it goes when it is purged")
        self.machine.run("dpkg", "-P", *PACKAGES)
        left = self.machine.changes() - before
        self.assertEqual({path for path in left if not path.startswith(BOOKS)}, set())
        self.assertFalse((self.machine.path / "run/tessera").exists())

    def test_what_the_administrator_made_stays(self):
        install(self.machine)
        token = self.machine.path / "etc/tessera/token"
        token.write_text("secret")
        self.machine.run("dpkg", "-P", *PACKAGES)
        self.assertEqual(token.read_text(), "secret")


def install(machine):
    """Documentation as well, where images of containers leave it out."""
    folder = machine.path / "tmp/debs"
    folder.mkdir(exist_ok=True)
    for deb in debs():
        (folder / deb.name).write_bytes(deb.read_bytes())
    machine.run("dpkg", "--path-include=/usr/share/*", "-i", *(f"/tmp/debs/{deb.name}" for deb in debs()))


if __name__ == "__main__":
    unittest.main()
