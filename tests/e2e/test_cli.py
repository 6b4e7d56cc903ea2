"""The command line: exit statuses, messages, tables for programs, and the daemon that `tessera run` starts."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN, BUILD, GIB, MIB, TENANT, SoftGpuTest, Tenant, wait_for

COMMANDS = ("run", "ps", "gpus", "vgpu", "space", "cdi", "doctor", "demo", "version")
VGPU_COMMANDS = ("ls", "show", "create", "set", "rm")
SPACE_COMMANDS = ("ls", "show", "create", "rm")


class Run(SoftGpuTest):
    """Without a daemon: `tessera run` starts its own."""

    SPEC = "1x4GiB,speed=4M"

    def setUp(self):
        super().setUp()
        self.run_flags = ("run", f"--soft={self.SPEC}")

    def status_of(self, *command):
        done = self.tessera(*self.run_flags, "--", *command, check=False)
        return done.returncode, done.stderr

    def daemon_pid(self):
        try:
            health = self.api("GET", "/healthz")[2]
        except OSError:
            return None
        self.assertTrue(health["embedded"])
        return health["pid"]

    def test_the_commands_own_status_is_passed_on(self):
        self.assertEqual(self.status_of("sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.status_of("sh", "-c", "kill -TERM $$")[0], -15)
        self.assertEqual(self.status_of("true"), (0, ""))

    def test_commands_that_cannot_be_run(self):
        status, said = self.status_of("no-such-command")
        self.assertEqual(status, 127)
        self.assertIn("no-such-command", said)
        plain_file = self.run_dir / "file"
        plain_file.write_text("")
        self.assertEqual(self.status_of(plain_file)[0], 126)

    def test_what_tessera_itself_cannot_do_is_125(self):
        for words in (("--vgpu", "nobody", "--", "true"), ("--memory", "100G", "--", "true"), ("--bogus", "--", "true"),
                      ("--memory", "20Q", "--", "true"), ("--gpu", "9", "--", "true"), ("--enforce", "nothing", "--", "true"),
                      ()):
            with self.subTest(words):
                done = self.tessera(*self.run_flags, *words, check=False)
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertTrue(done.stderr.startswith("tessera: "), done.stderr)

    def test_the_options_of_the_command_are_its_own(self):
        done = self.tessera(*self.run_flags, "echo", "--memory", "--help", "--", "-x")
        self.assertEqual(done.stdout, "--memory --help -- -x\n")

    def test_a_limit_and_a_share_are_what_was_asked_for(self):
        tenant = Tenant(self.spawn(BIN / "tessera", *self.run_flags, "--memory", "25%", "--compute", "30:60", "--weight", "7",
                                   "--", TENANT))
        tenant.until("ready")
        vgpu, = self.json("vgpu", "ls")["vgpus"]
        self.assertTrue(vgpu["name"].startswith("tessera-tenant"))
        self.assertEqual((vgpu["ephemeral"], vgpu["owner_pid"], vgpu["processes"]), (True, tenant.pid, [tenant.pid]))
        self.assertEqual((vgpu["memory_limit_bytes"], vgpu["compute_request_pct"], vgpu["compute_limit_pct"],
                          vgpu["compute_weight"]), (GIB, 30, 60, 7))
        tenant.finish()
        wait_for("the vGPU to go with its program", lambda: self.json("vgpu", "ls")["vgpus"] == [])

    def test_the_daemon_ends_after_the_last_program(self):
        tenant = Tenant(self.spawn(BIN / "tessera", *self.run_flags, "--", TENANT))
        tenant.until("ready")
        pid = self.daemon_pid()
        self.assertTrue(pid)
        tenant.finish()
        wait_for("the daemon to end", lambda: not os.path.exists(f"/proc/{pid}"))
        self.assertEqual([path.name for path in self.run_dir.glob("*.sock")], [])

    def test_fifty_at_once_share_one_daemon(self):
        keeper = Tenant(self.spawn(BIN / "tessera", *self.run_flags, "--memory", "64M", "--", TENANT, "--grab"))
        command = ("sh", "-c", "echo $TESSERA_VGPU")
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            runs = list(pool.map(lambda _: self.tessera(*self.run_flags, "--", *command, check=False), range(50)))
        self.assertEqual({(run.returncode, run.stderr) for run in runs}, {(0, "")})
        self.assertTrue(all(run.stdout.strip() for run in runs))
        served = (self.run_dir / "tesserad.log").read_text().count("serving")
        self.assertEqual(served, 1)
        keeper.child.kill()

    def test_the_daemon_does_not_start(self):
        self.run_dir.chmod(0o777)
        done = self.tessera(*self.run_flags, "true", check=False)
        self.assertEqual(done.returncode, 125)
        self.assertIn("is writable by other users", done.stderr)


class Commands(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def refused(self, status, *words):
        """The one line that a command prints which ends with `status`."""
        done = self.tessera(*words, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, r"\Atessera: .+\n\Z")
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_wrong_usage_names_what_was_meant(self):
        self.assertIn("'vgpu'", self.refused(2, "vgp", "ls"))
        self.assertIn("'create'", self.refused(2, "vgpu", "craete", "x"))
        self.assertIn("'--memory'", self.refused(2, "vgpu", "create", "x", "--memroy", "1G"))
        self.assertIn("'--json'", self.refused(2, "gpus", "--jsn"))
        self.refused(2, "vgpu", "show")
        self.refused(2)

    def test_bad_figures_are_wrong_usage(self):
        for flags in (("--memory", "12Q"), ("--memory", "-1"), ("--memory", "120%"), ("--compute", "130"), ("--compute", "60:30"),
                      ("--compute", "0:0"), ("--weight", "0"), ("--weight", "10001"), ("--weight", "x")):
            with self.subTest(flags):
                self.assertIn(flags[1], self.refused(2, "vgpu", "create", "team", *flags))
        self.assertEqual(self.json("vgpu", "ls"), {"vgpus": []})

    def test_what_does_not_exist(self):
        for words in (("vgpu", "show", "nobody"), ("vgpu", "set", "nobody", "--weight", "3"), ("vgpu", "rm", "nobody")):
            self.assertIn("nobody", self.refused(1, *words))

    def test_what_cannot_be_admitted_names_the_figures(self):
        self.tessera("vgpu", "create", "a", "--memory-request", "3G", "--compute", "80")
        said = self.refused(1, "vgpu", "create", "b", "--memory-request", "2G")
        for figure in ("2 GiB", "1 GiB", "4 GiB"):
            self.assertIn(figure, said)
        said = self.refused(1, "vgpu", "create", "b", "--compute", "30")
        for figure in ("30", "80"):
            self.assertIn(figure, said)

    def test_a_vgpu_is_made_shown_changed_and_removed(self):
        self.tessera("vgpu", "create", "team", "--memory", "1G", "--compute", "10:50", "--weight", "20")
        self.assertIn("team", self.tessera("vgpu", "ls").stdout)
        self.assertEqual(self.tessera("vgpu", "ls", "--quiet").stdout, "team\n")
        self.tessera("vgpu", "set", "team", "--memory", "512M")
        shown = self.json("vgpu", "show", "team")
        self.assertEqual((shown["memory_limit_bytes"], shown["compute_request_pct"], shown["compute_limit_pct"],
                          shown["compute_weight"]), (512 * MIB, 10, 50, 20))
        self.assertIn("512 MiB", self.tessera("vgpu", "show", "team").stdout)
        self.refused(1, "vgpu", "create", "team")
        self.refused(1, "vgpu", "set", "team")
        self.tessera("vgpu", "rm", "team")
        self.assertEqual(self.json("vgpu", "ls"), {"vgpus": []})

    def test_json_has_the_documented_fields(self):
        self.tessera("vgpu", "create", "team", "--memory", "1G")
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 64 * MIB)
        gpu, = self.json("gpus")["gpus"]
        self.assertEqual(set(gpu), {
            "index", "uuid", "name", "driver", "nvlink_group", "soft", "memory_total_bytes", "memory_reserve_bytes", "memory_used_bytes",
            "memory_promised_bytes", "memory_unmanaged_bytes", "context_bytes", "compute_requested_pct", "compute_busy_pct",
            "vgpus", "processes", "holder", "health", "load_migrations", "draining", "drain", "control", "swap"})
        self.assertEqual(set(gpu["health"]), {"failed", "why", "xid_errors", "ecc_errors", "last_xid", "last", "last_us"})
        self.assertEqual(set(gpu["swap"]), {"max_bytes", "pool_bytes", "pool_goal_bytes", "pool_used_bytes", "file_bytes",
                                            "file_used_bytes", "file_error", "capacity_bytes", "mover_pid", "decision", "mode", "turn_us"})
        self.assertEqual((gpu["index"], gpu["soft"], gpu["memory_total_bytes"], gpu["memory_promised_bytes"],
                          gpu["memory_used_bytes"], gpu["context_bytes"], gpu["vgpus"], gpu["processes"]),
                         (0, True, 4 * GIB, 0, 128 * MIB, 64 * MIB, 1, 1))
        self.assertEqual(set(self.json("vgpu", "show", "team")), {
            "name", "tag", "gpu", "gpu_uuid", "uid", "ephemeral", "owner_pid", "memory_request_bytes", "memory_limit_bytes",
            "memory_max_bytes", "memory_over_limit_bytes", "over_limit_error", "memory_current_bytes", "memory_peak_bytes", "memory_available_bytes", "oom_events", "compute_request_pct",
            "compute_limit_pct", "compute_weight", "compute_priority", "compute_current_pct", "compute_busy_us",
            "compute_waited_us", "compute_throttled_us", "compute_debt_us", "throttled", "preempted",
            "freezes", "slice_us", "frozen", "state", "processes", "memory_resident_bytes", "memory_pinned_bytes", "memory_pinned_by",
            "memory_swap_current_bytes", "memory_swap_max_bytes", "moved_out_bytes", "moved_in_bytes", "moving_us",
            "memory_pressure", "compute_pressure", "gpu_failed", "gpu_faults", "migrating_to", "migrate_error", "goal", "bursts",
            "gang", "labels", "space", "sm_limit_pct", "sm_reserved", "sm_burst", "sms", "sms_kept"})
        self.assertEqual(set(self.vgpu("team")["bursts"]), {"count", "requests", "p50_us", "p95_us", "p99_us", "solo_p50_us", "attained",
                                                            "violations", "verdict", "reason"})
        process, = self.json("ps")["processes"]
        self.assertEqual(set(process), {
            "pid", "name", "uid", "vgpu", "gpu", "memory_bytes", "memory_measured_bytes", "contexts", "compute_busy_us",
            "compute_waited_us", "submissions", "gate_waits", "gate_wait_us", "window", "oom_errors", "state", "started_us", "managed", "adopted",
            "enforce", "complete", "channels", "groups", "frozen", "memory_resident_bytes", "memory_pinned_bytes",
            "memory_pinned_by", "memory_exported_bytes", "memory_swapped_bytes", "memory_stranded_bytes", "memory_hot_out_bytes", "memory_evicting_bytes", "evict_error", "moved_out_bytes", "moved_in_bytes", "moving_us",
            "memory_used_on_host_bytes", "memory_on_host_us", "memory_on_host_told_us", "memory_waited_us", "room_waits",
            "gpu_failed", "suspension", "suspension_left_bytes", "suspended_to", "suspended_by", "suspend_error"})
        self.assertEqual((process["pid"], process["name"], process["vgpu"], process["memory_bytes"],
                          process["memory_measured_bytes"], process["contexts"]),
                         (shell.pid, "driver_shell", "team", 128 * MIB, 128 * MIB, 1))
        self.assertIn("driver_shell", self.tessera("ps").stdout)
        self.assertIn("Soft", self.tessera("gpus").stdout)

    def test_without_a_daemon(self):
        self.stop_daemon()
        self.assertIn(str(self.run_dir), self.refused(1, "ps"))


class Doctor(SoftGpuTest):
    def test_the_soft_gpu_works_here(self):
        done = self.tessera("doctor", "--soft", "--json", check=False)
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, report["can_run"], report["device"]), (0, True, "soft"), report)
        for check in report["checks"]:
            self.assertEqual(set(check), {"status", "name", "detail", "advice"})
            self.assertTrue(check["status"] == "ok" or check["advice"], check)
        self.assertIn("Programs can run", self.tessera("doctor", "--soft").stdout)

    def test_the_readme_shows_each_line_of_doctor(self):
        def headings(text):
            return re.findall(r"^(ok|warn|FAIL) +(.+?)  ", text, re.MULTILINE)
        readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
        shown = re.search(r"^\$ tessera doctor --soft\n(.*?)^$", readme, re.MULTILINE | re.DOTALL)[1]
        found = headings(self.tessera("doctor", "--soft").stdout)
        self.assertGreater(len(found), 5)
        self.assertEqual(headings(shown), found)

    def test_no_real_gpu(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has one")
        done = self.tessera("doctor", "--json", check=False)
        self.assertEqual((done.returncode, json.loads(done.stdout)["can_run"]), (1, False))

    def test_a_run_directory_that_cannot_be(self):
        done = self.tessera("doctor", "--soft", "--json", "--run-dir", "/proc/tessera/run", check=False)
        failed = [check["name"] for check in json.loads(done.stdout)["checks"] if check["status"] == "fail"]
        self.assertEqual((done.returncode, failed), (1, ["run directory"]))


class Reference(unittest.TestCase):
    def output(self, *command, **options):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, **options).stdout

    def paths(self):
        return ([(c,) for c in COMMANDS if c not in ("vgpu", "space")] + [("vgpu", c) for c in VGPU_COMMANDS] +
                [("space", c) for c in SPACE_COMMANDS] + [("cdi", "generate")])

    def test_every_command_has_help_with_examples(self):
        for path in self.paths():
            said = self.output(BIN / "tessera", *path, "--help")
            self.assertIn("Usage: tessera " + " ".join(path), said)
            self.assertIn("Examples:", said)
        said = self.output(BIN / "tessera", "--help")
        for command in COMMANDS:
            self.assertRegex(said, rf"\n  {command} ")
        self.assertIn("Usage", self.output(BIN / "tesserad", "--help"))

    def test_the_completion_knows_every_command(self):
        completion = (BUILD / "share" / "bash-completion" / "completions" / "tessera").read_text()
        for path in self.paths():
            self.assertIn('"tessera ' + " ".join(path) + '"', completion)
        self.output("bash", "-n", input=completion)

    def test_the_manual_knows_every_command(self):
        page = BUILD / "share" / "man" / "man1" / "tessera.1"
        if not page.exists() and not shutil.which("scdoc"):
            self.skipTest("manual pages need scdoc")
        manual = page.read_text()
        for path in self.paths():
            self.assertIn("tessera " + " ".join(path), manual)


if __name__ == "__main__":
    unittest.main()
