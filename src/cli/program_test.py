#!/usr/bin/env python3
"""The real `tessera` beside a daemon that is not: what it asks, what it says, how it ends.

Usage: program_test.py PATH-OF-TESSERA [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

TESSERA = None  # the binary under test
FAKE = pathlib.Path(__file__).resolve().parent / "testing" / "fake_tesserad.py"


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-cli-")
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name).resolve()
        for part in ("bin", "lib/tessera", "run"):
            (self.prefix / part).mkdir(parents=True)
        shutil.copy(TESSERA, self.prefix / "bin" / "tessera")
        shutil.copy(FAKE, self.prefix / "bin" / "tesserad").chmod(0o755)
        self.addCleanup(self.end_daemons)

    def plan(self, **plan):
        (self.prefix / "bin" / "fake.json").write_text(json.dumps(plan))

    def log(self):
        path = self.prefix / "bin" / "log.json-lines"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def starts(self):
        return [entry for entry in self.log() if "started" in entry]

    def requests(self):
        return [(entry["method"], entry["path"], entry["body"]) for entry in self.log() if "method" in entry]

    def end_daemons(self):
        for entry in self.starts():
            try:
                os.kill(entry["started"], signal.SIGKILL)
            except ProcessLookupError:
                pass

    def command(self, *words):
        return [str(self.prefix / "bin" / "tessera"), *words]

    def environment(self, **variables):
        base = {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA", "CUDA", "LD_"))}
        return base | {"TESSERA_RUN_DIR": str(self.prefix / "run"), **variables}

    def run_tessera(self, *words, **variables):
        return subprocess.run(self.command(*words), env=self.environment(**variables), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)

    def assert_one_line(self, result, status, *parts):
        self.assertEqual(result.returncode, status, result.stderr)
        own = [line for line in result.stderr.splitlines() if line.startswith("tessera: ")]
        self.assertEqual(len(own), 1, result.stderr)
        for part in parts:
            self.assertIn(part, own[0])

    def start_daemon(self):
        self.assertEqual(self.run_tessera("run", "--", "true").returncode, 0)


class Run(ProgramTest):
    def test_status_is_the_programs_own(self):
        self.assertEqual(self.run_tessera("run", "--", "sh", "-c", "exit 42").returncode, 42)
        self.assertEqual(self.run_tessera("run", "--", "true").returncode, 0)

    def test_a_signal_ends_it_as_it_ends_the_program(self):
        result = self.run_tessera("run", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(result.returncode, -signal.SIGKILL)

    def test_program_not_found_is_127(self):
        self.assert_one_line(self.run_tessera("run", "--", "no-such-program"), 127, "no-such-program", "No such file")

    def test_program_that_cannot_be_executed_is_126(self):
        file = self.prefix / "plain"
        file.write_text("text")
        file.chmod(stat.S_IRUSR)
        self.assert_one_line(self.run_tessera("run", "--", str(file)), 126, "plain", "Permission denied")

    def test_no_program_is_125(self):
        self.assert_one_line(self.run_tessera("run"), 125, "no program given")

    def test_no_daemon_binary_is_125(self):
        (self.prefix / "bin" / "tesserad").unlink()
        self.assert_one_line(self.run_tessera("run", "--", "true"), 125, "the daemon did not start", "cannot execute")

    def test_daemon_that_fails_says_why(self):
        self.plan(fail="tesserad: no NVIDIA driver; use --soft")
        self.assert_one_line(self.run_tessera("run", "--", "true"), 125, "no NVIDIA driver", "tesserad.log")

    def test_run_directory_that_cannot_be_made(self):
        result = self.run_tessera("run", "--run-dir", "/proc/no/such", "--", "true")
        self.assert_one_line(result, 125, "/proc/no", "--run-dir")

    def test_makes_a_vgpu_for_the_program(self):
        self.run_tessera("run", "--memory", "20G", "--compute", "30:60", "--weight", "200", "--priority", "0", "--gpu", "1",
                         "--", "/bin/true")
        (method, path, body), = self.requests()
        self.assertEqual((method, path), ("POST", "/v1/vgpus"))
        self.assertIsInstance(body.pop("owner_pid"), int)
        self.assertEqual(body, {"memory_limit": "20G", "compute_request": 30, "compute_limit": 60,
                                "compute_weight": 200,
                                "compute_priority": 0, "gpu": 1, "ephemeral": True, "program": "true"})

    def test_the_vgpu_is_owned_by_the_program(self):
        result = self.run_tessera("run", "--name", "x", "--", "sh", "-c", "echo $$")
        (_, _, body), = self.requests()
        self.assertEqual(body["owner_pid"], int(result.stdout))
        self.assertEqual(body["name"], "x")

    def variables(self, *options, **variables):
        result = self.run_tessera("run", *options, "--", "env", **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)

    def test_environment_on_a_real_gpu(self):
        variables = self.variables(LD_LIBRARY_PATH="/x")
        library = str(self.prefix / "lib" / "tessera")
        self.assertEqual(variables["LD_PRELOAD"], library + "/libcuda.so.1")
        self.assertEqual(variables["LD_LIBRARY_PATH"], library + ":/x")
        self.assertEqual(variables["TESSERA_VGPU"], "made")
        self.assertEqual(variables["TESSERA_RUN_DIR"], str(self.prefix / "run"))
        self.assertEqual(variables["CUDA_VISIBLE_DEVICES"], "GPU-0-of-made")
        self.assertNotIn("TESSERA_REAL_LIBCUDA", variables)

    def test_environment_on_the_soft_gpu(self):
        variables = self.variables("--soft=2x1GiB")
        self.assertEqual(variables["TESSERA_REAL_LIBCUDA"], str(self.prefix / "lib/tessera/soft/libcuda.so.1"))
        self.assertEqual(variables["TESSERA_SOFT"], "2x1GiB")
        self.assertEqual(self.starts()[0]["soft"], "2x1GiB")

    def test_a_running_soft_daemon_makes_runs_soft(self):
        self.plan(healthz={"soft": True})
        self.assertIn("TESSERA_REAL_LIBCUDA", self.variables())

    def test_visible_devices_stay_the_users_choice(self):
        self.assertEqual(self.variables(CUDA_VISIBLE_DEVICES="1")["CUDA_VISIBLE_DEVICES"], "1")

    def test_existing_vgpus(self):
        variables = self.variables("--vgpu", "a,b")
        self.assertEqual(variables["TESSERA_VGPU"], "a,b")
        self.assertEqual(variables["CUDA_VISIBLE_DEVICES"], "GPU-0-of-a,GPU-0-of-b")
        self.assertEqual([path for _, path, _ in self.requests()], ["/v1/vgpus/a", "/v1/vgpus/b"])

    def test_unknown_vgpu(self):
        self.assert_one_line(self.run_tessera("run", "--vgpu", "nope", "--", "true"), 125, "nope", "tessera vgpu ls")

    def test_what_cannot_be_admitted(self):
        self.plan(answers={"POST /v1/vgpus": [409, {"detail": "20 GiB asked, 3 GiB left", "hint": "ask for less"}]})
        result = self.run_tessera("run", "--memory", "20G", "--", "true")
        self.assert_one_line(result, 125, "tessera: 20 GiB asked, 3 GiB left; ask for less")

    def packets(self):
        return [entry for entry in self.log() if "packet" in entry]

    def test_without_the_kernel_gate_there_is_no_filter(self):
        for options in ([], ["--enforce", "shim"]):
            result = self.run_tessera("run", *options, "--", "cat", "/proc/self/status")
            self.assertIn(f"\n{self.own_seccomp()}\n", result.stdout)
        self.assertEqual(self.packets(), [])

    def own_seccomp(self):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        found = [line for line in lines if line.startswith("Seccomp_filters:")]
        return found[0] if found else self.skipTest("this kernel does not count filters")

    def run_behind_the_gate(self, *command):
        result = self.run_tessera("run", "--vgpu", "a,b", "--enforce", "kernel", "--", *command)
        if result.returncode == 125 and re.search("seccomp|kernel gate", result.stderr):
            self.skipTest("no filter can be installed here: " + result.stderr)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_the_daemon_has_the_listener_before_the_program_starts(self):
        log = self.run_behind_the_gate("cat", str(self.prefix / "bin" / "log.json-lines"))
        packets = [entry for entry in map(json.loads, log.splitlines()) if "packet" in entry]
        self.assertEqual(packets, [{"packet": 11, "descriptors": 0, "vgpus": "a,b", "program": "cat"},
                                   {"packet": 12, "descriptors": 1}])

    def test_behind_the_gate_there_is_one_more_filter(self):
        status = self.run_behind_the_gate("cat", "/proc/self/status")
        filters = int(self.own_seccomp().split()[1])
        self.assertIn(f"\nSeccomp_filters:\t{filters + 1}\n", status)

    def test_the_program_holds_no_listener(self):
        links = self.run_behind_the_gate("ls", "-l", "/proc/self/fd")
        self.assertNotIn("seccomp", links)
        self.assertNotIn("socket", links)

    def test_a_daemon_that_refuses_to_guard(self):
        self.plan(refuse="the kernel has no gate; use --enforce shim")
        result = self.run_tessera("run", "--enforce", "kernel", "--", "echo", "ran")
        self.assert_one_line(result, 125, "tessera: the kernel has no gate; use --enforce shim")
        self.assertEqual((result.stdout, [entry["packet"] for entry in self.packets()]), ("", [11]))

    def test_simultaneous_starts_share_one_daemon(self):
        programs = [subprocess.Popen(self.command("run", "--", "true"), env=self.environment(),
                                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(40)]
        for program in programs:
            _, errors = program.communicate(timeout=60)
            self.assertEqual(program.returncode, 0, errors)
        self.assertEqual(len(self.starts()), 1)
        self.assertEqual(len(self.requests()), 40)

    def test_the_daemon_holds_nothing_of_ours(self):
        # The pipe reaches its end although the daemon lives on.
        result = self.run_tessera("run", "--", "echo", "hello", LD_PRELOAD="")
        self.assertEqual(result.stdout, "hello\n")
        pid = self.starts()[0]["started"]
        self.assertEqual(os.getsid(pid) == os.getsid(0), False)
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")

    def test_the_daemon_is_not_the_programs_child(self):
        # Where our first run started the daemon, the second must find it, and the program must not be its parent.
        result = self.run_tessera("run", "--", "sh", "-c", "echo $$")
        status = pathlib.Path(f"/proc/{self.starts()[0]['started']}/status").read_text()
        self.assertNotIn(f"PPid:\t{result.stdout.strip()}\n", status)

    def test_inside_another_run_the_daemon_is_not_preloaded(self):
        self.run_tessera("run", "--", "true", LD_PRELOAD=str(self.prefix / "lib/tessera/libcuda.so.1"))
        self.assertIsNone(self.starts()[0]["preload"])

    def test_soft_is_refused_by_a_real_daemon(self):
        self.start_daemon()
        self.assert_one_line(self.run_tessera("run", "--soft", "--", "true"), 125, "manages real GPUs", "--run-dir")

    def test_daemon_of_another_protocol(self):
        self.plan(healthz={"protocol": 77, "version": "9.9"})
        self.assert_one_line(self.run_tessera("run", "--", "true"), 125, "9.9", "protocol 77")

    def test_folder_that_cannot_be_preloaded_from(self):
        moved = self.prefix / "my tools" / "bin"
        shutil.copytree(self.prefix / "bin", moved)
        result = subprocess.run([moved / "tessera", "run", "--", "true"], env=self.environment(), capture_output=True,
                                text=True, timeout=60)
        self.addCleanup(lambda: [os.kill(json.loads(line)["started"], signal.SIGKILL)
                                 for line in (moved / "log.json-lines").read_text().splitlines() if "started" in line])
        self.assert_one_line(result, 125, "my tools", "LD_PRELOAD")


class Lists(ProgramTest):
    def test_without_a_daemon(self):
        for words in (["ps"], ["gpus"], ["vgpu", "ls"], ["vgpu", "show", "a"], ["vgpu", "create", "a"],
                      ["vgpu", "set", "a", "--weight", "5"], ["vgpu", "rm", "a"], ["freeze", "a", "7"], ["thaw", "7"],
                      ["adopt", "7", "--vgpu", "a"]):
            self.assert_one_line(self.run_tessera(*words), 1, "no daemon answers", "api.sock", "tesserad")
        self.assertEqual(self.starts(), [])

    def test_json_is_what_the_daemon_answers(self):
        processes = {"processes": [{"pid": 2, "name": "y", "managed": False, "vgpu": None, "state": None, "frozen": []},
                                   {"pid": 1, "name": "x", "memory_bytes": 5, "state": "idle", "frozen": ["policy"]}]}
        gpus = {"gpus": [{"index": 0, "uuid": "GPU-1", "name": "Soft", "memory_total_bytes": 1,
                          "control": {"by": "gate", "why": "no channels", "driver_calls": 3}}]}
        self.plan(answers={"GET /v1/processes": [200, processes], "GET /v1/gpus": [200, gpus]})
        self.start_daemon()
        self.assertEqual(json.loads(self.run_tessera("ps", "--json").stdout), processes)
        self.assertEqual(json.loads(self.run_tessera("--json", "gpus").stdout), gpus)
        self.assertEqual(json.loads(self.run_tessera("vgpu", "ls", "--json").stdout)["vgpus"][1]["name"], "b")
        self.assertEqual(json.loads(self.run_tessera("vgpu", "show", "a", "--json").stdout)["name"], "a")
        self.assertEqual(json.loads(self.run_tessera("version", "--json").stdout)["daemon"]["version"], "0.1.0")

    def test_tables_for_people(self):
        self.start_daemon()
        table = self.run_tessera("vgpu", "ls").stdout
        self.assertRegex(table, r"^NAME +GPU +MEMORY")
        self.assertRegex(table, r"\na +0 +1 GiB +2 GiB")
        self.assertNotIn("\033", table)
        self.assertEqual(self.run_tessera("vgpu", "ls", "--quiet").stdout, "a\nb\n")
        self.assertIn("compute limit     60 %\n", self.run_tessera("vgpu", "show", "a").stdout)

    def test_unmanaged_and_frozen_processes(self):
        processes = {"processes": [{"pid": 2, "name": "y", "managed": False, "vgpu": None, "state": None, "frozen": []},
                                   {"pid": 1, "name": "x", "vgpu": "a", "state": "idle", "frozen": ["policy"]}]}
        self.plan(answers={"GET /v1/processes": [200, processes]})
        self.start_daemon()
        self.assertRegex(self.run_tessera("ps").stdout, r"\n *1 +x +a +- +frozen .*\n *2 +y +- +- +unmanaged ")

    def test_gpus_say_who_enforces(self):
        gpus = {"gpus": [{"index": 0, "uuid": "GPU-1", "control": {"by": "channels", "why": ""}},
                         {"index": 1, "uuid": "GPU-2", "control": {"by": "gate", "why": "the driver is unknown"}}]}
        self.plan(answers={"GET /v1/gpus": [200, gpus]})
        self.start_daemon()
        said = self.run_tessera("gpus").stdout
        self.assertRegex(said, r"channels +GPU-1\n.* gate +GPU-2\n")
        self.assertTrue(said.endswith("\n  GPU 1: the driver is unknown\n"), said)

    def test_version_needs_no_daemon(self):
        result = self.run_tessera("version")
        self.assertEqual(result.returncode, 0)
        self.assertIn("tesserad is not running", result.stdout)
        self.assertIsNone(json.loads(self.run_tessera("version", "--json").stdout)["daemon"])

    def test_answers_that_are_none(self):
        self.plan(answers={"GET /v1/gpus": [200, "{\"gpus\": ["], "GET /v1/processes": [500, "<html>"]})
        self.start_daemon()
        self.assert_one_line(self.run_tessera("gpus"), 1, "not JSON")
        self.assert_one_line(self.run_tessera("ps"), 1, "HTTP status 500")


class Vgpus(ProgramTest):
    def ask(self, *words):
        self.start_daemon()
        before = len(self.requests())
        result = self.run_tessera("vgpu", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return self.requests()[before:]

    def test_create(self):
        self.assertEqual(self.ask("create", "team", "--memory", "25%", "--compute", "30"),
                         [("POST", "/v1/vgpus", {"name": "team", "memory_limit": "25%",
                                                 "compute_request": 30, "compute_limit": 30})])

    def test_set(self):
        self.assertEqual(self.ask("set", "a", "--weight", "10"),
                         [("PATCH", "/v1/vgpus/a?wait=false", {"compute_weight": 10})])

    def test_remove(self):
        self.assertEqual(self.ask("rm", "a"), [("DELETE", "/v1/vgpus/a", None)])

    def test_remove_by_force(self):
        self.plan(answers={"DELETE /v1/vgpus/a?force=1": [204, None]})
        self.assertEqual(self.ask("rm", "--force", "a"), [("DELETE", "/v1/vgpus/a?force=1", None)])

    def test_refusals(self):
        self.start_daemon()
        self.assert_one_line(self.run_tessera("vgpu", "show", "nope"), 1, "nope", "tessera vgpu ls")
        self.assert_one_line(self.run_tessera("vgpu", "set", "a"), 1, "nothing to set", "--memory")


class Steering(ProgramTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.before = len(self.requests())

    def asked(self):
        return self.requests()[self.before:]

    def test_freeze_and_thaw_say_nothing_when_it_worked(self):
        for verb in ("freeze", "thaw"):
            result = self.run_tessera(verb, "a", "7", "vgpu:7")
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(self.asked(), [("POST", f"/v1/{what}/{verb}", {}) for verb in ("freeze", "thaw")
                                        for what in ("vgpus/a", "processes/7", "vgpus/7")])

    def test_all_targets_are_tried(self):
        result = self.run_tessera("freeze", "nobody", "a", "8")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "tessera: there is no /v1/vgpus/nobody/freeze; see tessera vgpu ls\n"
                                        "tessera: there is no /v1/processes/8/freeze; see tessera vgpu ls\n")
        self.assertEqual(len(self.asked()), 3)

    def test_targets_are_checked_before_any_is_frozen(self):
        self.assert_one_line(self.run_tessera("freeze", "a", "b/c"), 2, "'b/c'")
        self.assertEqual(self.asked(), [])

    def test_adopt(self):
        result = self.run_tessera("adopt", "7", "--vgpu", "a")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(self.asked(), [("POST", "/v1/processes/7/adopt", {"vgpu": "a"})])
        self.assertEqual(json.loads(self.run_tessera("adopt", "7", "--vgpu", "b", "--json").stdout)["vgpu"], "b")
        self.assert_one_line(self.run_tessera("adopt", "8", "--vgpu", "a"), 1, "/v1/processes/8/adopt")

    def test_priority(self):
        self.run_tessera("vgpu", "set", "a", "--priority", "15")
        self.assertEqual(self.asked(), [("PATCH", "/v1/vgpus/a?wait=false", {"compute_priority": 15})])
        self.assert_one_line(self.run_tessera("vgpu", "set", "a", "--priority", "16"), 2, "'16'", "0 to 15")
        self.assertIn("compute priority  8\n", self.run_tessera("vgpu", "show", "a").stdout)

    def test_goal(self):
        self.run_tessera("vgpu", "set", "a", "--goal", "p99=20ms")
        self.assertEqual(self.asked(), [("PATCH", "/v1/vgpus/a?wait=false", {"goal": "p99=20ms"})])
        self.assertIn("goal              none\n", self.run_tessera("vgpu", "show", "a").stdout)

    def test_gang(self):
        self.run_tessera("vgpu", "set", "a", "--gang", "job")
        self.assertEqual(self.asked(), [("PATCH", "/v1/vgpus/a?wait=false", {"gang": "job"})])
        self.assertIn("gang              none\n", self.run_tessera("vgpu", "show", "a").stdout)
        self.assert_one_line(self.run_tessera("vgpu", "set", "a", "--gang", "a/b"), 2, "gang 'a/b'", "letters")
        self.assert_one_line(self.run_tessera("vgpu", "create", "b", "--gang", "job", "--space", "s"), 2, "--gang")

    def test_within_quota(self):
        self.run_tessera("vgpu", "create", "b", "--within-quota")
        self.assertEqual(self.asked(), [("POST", "/v1/vgpus", {"name": "b", "within_quota": True})])

    def test_labels(self):
        self.run_tessera("vgpu", "set", "a", "--label", "team=a b", "--label=stage=x=y")
        self.assertEqual(self.asked(), [("PATCH", "/v1/vgpus/a?wait=false", {"labels": {"team": "a b", "stage": "x=y"}})])
        self.assertIn("labels            none\n", self.run_tessera("vgpu", "show", "a").stdout)
        self.assert_one_line(self.run_tessera("vgpu", "set", "a", "--label", "team"), 1, "'team'", "KEY=VALUE")


class Usage(ProgramTest):
    def test_mistyped_words(self):
        self.assert_one_line(self.run_tessera("docter"), 2, "'docter'", "did you mean 'doctor'?")
        self.assert_one_line(self.run_tessera("vgpu", "lst"), 2, "did you mean 'ls'?")
        self.assert_one_line(self.run_tessera("ps", "--jsno"), 2, "did you mean '--json'?")
        self.assert_one_line(self.run_tessera(), 2, "no command given")

    def test_values_that_are_none(self):
        self.assert_one_line(self.run_tessera("vgpu", "create", "a", "--memory", "20X"), 2, "20X", "invalid size")
        self.assert_one_line(self.run_tessera("vgpu", "create", "a", "--compute", "130"), 2, "130", "more than 100 %")
        self.assert_one_line(self.run_tessera("run", "--memory", "20X", "--", "true"), 125, "20X")
        self.assertEqual(self.starts(), [])

    def test_help_has_examples(self):
        for words in ([], ["run"], ["vgpu", "create"], ["freeze"], ["thaw"], ["adopt"], ["doctor"], ["demo"]):
            result = self.run_tessera(*words, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Examples:\n  tessera ", result.stdout)

    def test_doctor_changes_nothing_and_its_status_is_its_verdict(self):
        result = self.run_tessera("doctor", "--soft", "--json")
        report = json.loads(result.stdout)
        # This prefix has no soft GPU, which must be noticed.
        self.assertEqual((result.returncode, report["can_run"]), (1, False))
        self.assertEqual(report["device"], "soft")
        self.assertIn("fail", [check["status"] for check in report["checks"] if check["name"] == "soft GPU"])
        for check in report["checks"]:
            self.assertEqual(set(check), {"name", "status", "detail", "advice"})
            self.assertIn(check["status"], ("ok", "warn", "fail"))
            self.assertTrue(check["advice"] or check["status"] == "ok", check)
        self.assertEqual(list((self.prefix / "run").iterdir()), [])

    def doctor(self, *options):
        report = json.loads(self.run_tessera("doctor", "--json", *options).stdout)
        return {check["name"]: check for check in report["checks"]}

    def test_doctor_tells_what_the_daemon_found(self):
        checks = [{"name": "channel control", "ok": True, "text": "works", "hint": ""},
                  {"name": "watch", "ok": False, "text": "not permitted", "hint": "run the daemon as root"}]
        self.plan(answers={"GET /v1/doctor": [200, {"checks": checks}]})
        self.start_daemon()
        said = self.doctor()
        self.assertEqual((said["channel control"]["status"], said["channel control"]["detail"]), ("ok", "works"))
        self.assertEqual((said["watch"]["status"], said["watch"]["advice"]), ("warn", "run the daemon as root"))
        self.assertIn("in the middle of a kernel", said["compute"]["detail"])
        self.assertIn(said["kernel gate"]["status"], ("ok", "warn"))  # tried here, because this daemon does not say

    def test_doctor_survives_a_daemon_that_says_nothing(self):
        self.plan(answers={"GET /v1/doctor": [404, {"detail": "there is no /v1/doctor"}]})
        self.start_daemon()
        said = self.doctor()
        self.assertEqual(said["channel control"]["status"], "warn")
        self.assertIn("there is no /v1/doctor", said["channel control"]["detail"])
        self.assertIn("between kernels", said["compute"]["detail"])

    def test_doctor_tries_channels_itself_without_a_daemon(self):
        (self.prefix / "lib/tessera/soft").mkdir()
        (self.prefix / "lib/tessera/soft/libcuda.so.1").touch()
        library = self.prefix / "lib/tessera"
        for name, line, status in (("tessera-tenant", "fine", 0),
                                   ("tessera-channel-test", '{"ok":true,"slice_us":2000,"freeze_us":450,"thaw_us":260}', 0)):
            (library / name).write_text(f"#!/bin/sh\necho \"$@\" >> {library}/words\necho '{line}'\nexit {status}\n")
            (library / name).chmod(0o755)
        said = self.doctor("--soft")
        self.assertEqual(said["channel control"]["status"], "ok", said)
        self.assertIn("450 us", said["channel control"]["detail"])
        self.assertEqual((library / "words").read_text().splitlines()[-1], "--soft")
        failure = '{"ok":false,"step":"slice","why":"x"}'
        (library / "tessera-channel-test").write_text(f"#!/bin/sh\necho '{failure}'; exit 1\n")
        said = self.doctor("--soft")
        self.assertEqual(said["channel control"]["status"], "warn")
        self.assertIn("at slice: x", said["channel control"]["detail"])

    def test_demo_without_a_soft_gpu_fails_cleanly(self):
        self.plan(fail="tesserad: no soft GPU here")
        result = self.run_tessera("demo", "--soft", "--json", TMPDIR=str(self.prefix))
        self.assert_one_line(result, 1, "no soft GPU here")
        self.assertEqual([path.name for path in self.prefix.glob("tessera-demo-*")], [])


class Reference(ProgramTest):
    def complete(self, *words):
        if not os.path.exists("/usr/share/bash-completion/bash_completion"):
            self.skipTest("bash-completion is not installed")
        script = self.prefix / "completion"
        script.write_text(self.run_tessera("internal-completion").stdout)
        code = f"""source /usr/share/bash-completion/bash_completion; source {script}
            COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
            COMP_LINE='{" ".join(words)}'; COMP_POINT=${{#COMP_LINE}}
            _tessera; printf '%s\\n' "${{COMPREPLY[@]}}" """
        path = f"{self.prefix}/bin:{os.environ['PATH']}"
        return subprocess.run(["bash", "-c", code], env=self.environment(PATH=path), capture_output=True,
                              text=True).stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("tessera", "do"), ["doctor"])
        self.assertEqual(self.complete("tessera", "vgpu", "s"), ["show", "set"])
        self.assertEqual(self.complete("tessera", "run", "--me"), ["--memory", "--memory-request"])
        self.assertIn("true", self.complete("tessera", "run", "--", "tru"))

    def test_completion_of_names(self):
        self.start_daemon()
        self.assertEqual(self.complete("tessera", "vgpu", "rm", ""), ["a", "b"])
        self.assertEqual(self.complete("tessera", "run", "--vgpu", "b"), ["b"])
        self.assertEqual(self.complete("tessera", "freeze", ""), ["a", "b"])
        self.assertEqual(self.complete("tessera", "adopt", "7", "--vgpu", ""), ["a", "b"])

    def test_manual_has_no_mistakes(self):
        if not shutil.which("scdoc") or not shutil.which("groff"):
            self.skipTest("scdoc or groff is not installed")
        page = subprocess.run(["scdoc"], input=self.run_tessera("internal-man").stdout, capture_output=True, text=True)
        self.assertEqual((page.returncode, page.stderr), (0, ""))
        text = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page.stdout, capture_output=True, text=True)
        self.assertEqual(text.stderr, "")
        for command in ("tessera vgpu create", "tessera freeze", "tessera thaw", "tessera adopt"):
            self.assertIn(command, text.stdout)


if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
