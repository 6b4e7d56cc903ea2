"""Every command of the documents, typed as it stands there, on a machine with the packages and a soft GPU of 80 GiB.

A command is what stands behind "$ " or "# " in a block of code, or each line of a block without prompts whose lines begin
with a program of ours. Programs of users (python, vllm, ./simulate ...) are stood in for by a CUDA program; those that are
left in the background run until the end of their document. What cannot be run here is listed below with its reason, and so
is what another test runs: a command that is in neither list is run.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]
from harness import wait_for  # noqa: E402
from machine import Machine  # noqa: E402
from test_deb import SOURCE, install, setUpModule  # noqa: E402,F401

DOCUMENTS = sorted([SOURCE / "README.md", *(SOURCE / "docs").rglob("*.md")])
OURS = ("tessera ", "tesserad", "make ", "curl ", "systemctl ", "sudo ", "export ")
# By how a command begins (or all of it, before a "$"), and what it would need.
NOT_RUN = {
    "make image": "there is no registry for its base; e2e.test_image",
    "make ": "continuous integration runs these themselves (make demo: cli.demo)",
    "sudo ": "as the next ones",
    "apt ": "packages.test_deb installs and removes them",
    "dnf ": "packages.test_rpm installs and removes them",
    "systemctl ": "there is no service manager; tried by hand",
    "systemd-sysusers": "packages.test_deb",
    "usermod ": "it is for people to be",
    "podman ": "e2e.test_cdi, or a real GPU and NVIDIA's toolkit",
    "docker ": "there is no Docker",
    "nvidia-ctk ": "NVIDIA's toolkit",
    "sbatch ": "there is no Slurm; e2e.test_slurm runs the scripts",
    "mkdir -p /etc/cdi": "e2e.test_cdi",
    "tessera cdi ": "e2e.test_cdi",
    "tessera adopt ": "programs that nobody manages are seen on real GPUs; tests/hw/run.py --only 'steer.adopt_*'",
    "tessera freeze 4711": "likewise",
    "tessera migrate ": "there is one GPU; e2e.test_migrate",
    "tessera gpu ": "likewise; e2e.test_drain",
    "tessera trace --last": "nothing has gone wrong; e2e.test_trace",
    "tessera vgpu record ": "it lasts a day; e2e.test_trace",
    "tessera top$": "it has keys; e2e.test_top",
    "tessera page$": "it goes on until it is interrupted; e2e.test_page",
    "tessera plan mix.toml": "the mix is the reader's own",
    "tessera doctor$": "it asks for a real GPU, and finds none",
    "curl -N ": "it goes on until it is interrupted; e2e.test_events",
    "tessera-kubelet ": "e2e.test_dra and e2e.test_device_plugin, with stand-ins of a cluster",
    "kubectl ": "there is no cluster; e2e.test_manifests and e2e.test_in_containers",
    "tessera plan --advise ": "it looks for ten minutes; e2e.test_advise",
    "tessera bench ": "it measures a real GPU; e2e.test_bench",
    "tessera run --enforce kernel": "a soft GPU has no kernel driver",
}
# What was true once, and documents say no more: patterns, and what is true now.
UNTRUE = {
    r"vGPUs? (is|are) (gone|lost) after a (re)?boot|gone after a (re)?boot, as the vGPUs? (is|are)":
        "vGPUs that were made to last are in vgpus.json, below /var/lib",
    r"(vGPUs?\b[^.|]*|[Ii]t|[Tt]hey) (does|do) not (survive|outlive) a (re)?boot": "likewise",
    r"create (them|it|the vGPUs?) in a unit": "nobody has to create them again",
}
ONCE_SAID = (
    "| vGPUs are gone after a boot | they are kept in `/run` | create them in a unit at boot |",
    "daemon. It does not survive a boot, so create it in a unit or a script that runs at\nboot.",
    "In `/var/run/cdi` the file is gone after a boot, as the\nvGPUs are.",
)
# Commands that run before a document's own.
BEFORE = {
    "README.md": ["tessera vgpu create team-a", "tessera vgpu create notebook"],
    "files.md": ["tessera run --name stranger -- ./train &", "pid=$(tail -1 /run/tessera/fs/processes/list)"],
    "migration.md": ["tessera vgpu create notebook"],
    "memory.md": ["tessera vgpu create notebook", "tessera vgpu create second"],
}
# Stands between two recipes: the programs of the first are gone.
AFRESH = "afresh"
STAND_INS = ("python", "vllm", "jupyter")
FILES = ("simulate", "a", "b", "train", "serve", "rank", "my-cuda-program")


def blocks(text):
    """The blocks of code without a language, as lists of lines; None where a section of the third level begins."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$|^### ", text, re.MULTILINE | re.DOTALL):
        if match[0] == "### ":
            yield None
        elif not match[1]:
            yield match[2].splitlines()


def commands(text):
    for block in blocks(text):
        if block is None:
            yield AFRESH
            continue
        prompts = any(line.startswith(("$ ", "# ")) for line in block)
        if not prompts and not block[0].startswith(OURS):
            continue  # a listing, or the text of a file
        whole = None
        for line in block:
            if whole is not None:
                whole += "\n" + line
            elif prompts and line.startswith(("$ ", "# ")):
                whole = line[2:]
            elif not prompts:
                whole = line
            else:
                continue  # what it prints
            if not whole.endswith("\\") and plain(whole).count("'") % 2 == 0:
                yield whole
                whole = None


def plain(command):
    """Without the comment behind it."""
    return re.sub(r"\s+#.*$", "", command)


def needs(command):
    """Why it is not run; None if it is."""
    return next((why for beginning, why in NOT_RUN.items() if (plain(command) + "$").startswith(beginning)), None)


def untrue(text):
    """What a document should not say any more, with what is true."""
    text = re.sub(r"\s+", " ", text)
    return [(found[0], now) for pattern, now in UNTRUE.items() for found in re.finditer(pattern, text)]


def script(before, commands):
    """Bash that runs them one after the other, and waits for each program in the background to use the GPU."""
    lines = ["set -eEm", "trap 'echo \"failed: $BASH_COMMAND\" >&2' ERR", "trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT",
             "started=0",
             "afresh() { kill -9 $(jobs -p) 2>/dev/null || true; started=0; "
             "for _ in $(seq 600); do [ $(tessera ps --json | grep -c '\"managed\": true') = 0 ] && return; sleep 0.05; done; return 1; }",
             "settle() { for _ in $(seq 600); do [ $(tessera ps --json $1 | grep -c '\"contexts\": [1-9]') -ge $started ] && return; "
             "sleep 0.05; done; echo 'programs do not start' >&2; return 1; }"]
    for command in [*before, *commands]:
        if plain(command).endswith("&"):
            soft = "--soft" if "--soft" in command else ""
            lines += [f"export STAND_IN_SECONDS=600; {command}", "export STAND_IN_SECONDS=0.3; started=$((started + 1))", f"settle {soft}"]
        else:
            if command.startswith("export TESSERA_RUN_DIR=/tmp/"):
                lines.append("started=0")  # of another daemon
            lines.append(command)
    return "\n".join(lines) + "\n"


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Machine()
        cls.addClassCleanup(cls.machine.close)
        install(cls.machine)
        cls.name = uuid.uuid4().hex[:12]
        # No value of it may name files of another test's.
        cls.addClassCleanup(lambda: [path.unlink() for path in pathlib.Path("/dev/shm").glob(f"*{cls.name}*")])
        stand_in = '#!/bin/sh\nexec /usr/lib/tessera/tessera-tenant --report-every 0 --memory 64M --seconds ${STAND_IN_SECONDS:-0.3}\n'
        source = cls.machine.path / "src"
        (source / "build/release/lib").mkdir(parents=True)
        (source / "build/release/bin").symlink_to("/usr/bin")
        (source / "build/release/lib/tessera").symlink_to("/usr/lib/tessera")
        for path in [*(cls.machine.path / "usr/local/bin" / name for name in STAND_INS), *(source / name for name in FILES)]:
            path.write_text(stand_in)
            path.chmod(0o755)

    def environment(self, document):
        # A name of the document's own: what it leaves behind is nobody else's.
        return {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                "TESSERA_SOFT_NAME": f"{self.name}-{document.stem.lower()}"}

    def run_document(self, document):
        typed = [command for command in commands(document.read_text()) if needs(command) is None]
        if set(typed) <= {AFRESH}:
            return
        env = self.environment(document)
        daemon = subprocess.Popen(self.machine.command("/usr/bin/tesserad", "--soft=1x80GiB,context=16MiB", "--run-dir", "/run/tessera"),
                                  env=env, stderr=subprocess.PIPE, text=True)
        try:
            asks = self.machine.command("/usr/bin/tessera", "gpus")
            wait_for("the daemon", lambda: subprocess.run(asks, env=env, capture_output=True).returncode == 0)
            in_source = ["chroot", str(self.machine.path), "sh", "-c", 'cd /src && exec timeout 120 bash -c "$1"', "sh", script(BEFORE.get(document.name, []), typed)]
            # Not to a pipe, which what runs on in the background would hold.
            with tempfile.TemporaryFile("w+") as out:
                status = subprocess.run(in_source, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL).returncode
                out.seek(0)
                self.assertEqual(status, 0, f"{document.name}: {out.read()[-3000:]}")
        finally:
            self.end_programs()
            daemon.send_signal(signal.SIGTERM)
            said = daemon.communicate(timeout=60)[1]
            self.assertEqual(daemon.returncode, 0, said)
            shutil.rmtree(self.machine.path / "run/tessera")  # with the vGPUs that it would bring back

    def end_programs(self):
        """Ends the programs that the commands left running, with their daemons."""
        root = str(self.machine.path)
        for process in pathlib.Path("/proc").iterdir():
            try:
                command = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
                if b"tessera-tenant" in command and os.readlink(process / "root") == root:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended

    def test_what_is_not_run_is_still_there(self):
        """A reason for a command that no document has any more is a reason for nothing."""
        everything = [command for document in DOCUMENTS for command in commands(document.read_text())]
        for beginning in NOT_RUN:
            self.assertTrue(any((plain(command) + "$").startswith(beginning) for command in everything), beginning)

    def test_vgpus_outlive_boots(self):
        for text in ONCE_SAID:
            self.assertTrue(untrue(text), text)
        for document in DOCUMENTS:
            self.assertEqual(untrue(document.read_text()), [], document.name)

    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
                if "://" not in target:
                    self.assertTrue((document.parent / target).exists(), f"{document.name}: {target}")


def add_tests():
    for document in DOCUMENTS:
        name = re.sub(r"\W+", "_", str(document.relative_to(SOURCE)).removesuffix(".md").lower())
        setattr(Documents, f"test_{name}", lambda self, document=document: self.run_document(document))


add_tests()

if __name__ == "__main__":
    unittest.main()
