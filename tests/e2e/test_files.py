"""The tree of files at <run-dir>/fs: what a script does with open, read, write, mkdir, rmdir and poll."""
import concurrent.futures
import errno
import grp
import os
import pathlib
import select
import signal
import subprocess
import threading
import unittest

from harness import BIN, DEADLINE_S, GIB, MIB, OUT_OF_MEMORY, SoftGpuTest, mounts, wait_for

UNLIMITED = "18446744073709551615\n"
NOBODY = 65534
# For a change in a folder of mode 0555: the kernel refuses it to others before it asks the daemon, which root reaches.
NOT_WRITABLE = errno.EPERM if os.getuid() == 0 else errno.EACCES


class FilesTest(SoftGpuTest):
    """With a daemon whose files are there; skipped where there can be none."""

    def setUp(self):
        super().setUp()
        self.files = self.run_dir / "fs"

    def start(self, **options):
        self.start_daemon(**options)
        log = self.daemon_log()
        if "the files are not available: " in log:
            self.assertEqual(mounts(self.files), 0)
            self.skipTest(log[log.index("the files are not available: "):].splitlines()[0])
        self.assertIn(f"files are mounted at {self.files}", log)
        self.assertEqual(mounts(self.files), 1)

    def refused(self, code, action, *arguments):
        with self.assertRaises(OSError) as caught:
            action(*arguments)
        self.assertEqual(errno.errorcode[caught.exception.errno], errno.errorcode[code])

    def read(self, path):
        return (self.files / path).read_text()

    def write(self, path, text):
        """One write(2), as of echo."""
        fd = os.open(self.files / path, os.O_WRONLY | os.O_TRUNC)
        try:
            self.assertEqual(os.write(fd, text.encode()), len(text))
        finally:
            os.close(fd)


class Scripts(FilesTest):
    def test_a_script_for_gvm_after_changing_one_prefix(self):
        """The commands of GVM's README, in its order."""
        self.start()
        self.create("team")
        shell = self.shell_with_context("team")
        shell.ok("allocate", "alloc", 256 * MIB)
        shell.ok("launch", 1)
        shell.ok("sync")
        processes = self.files / "processes"

        def run(script):
            done = subprocess.run(["sh", "-ec", script], text=True, capture_output=True, timeout=DEADLINE_S,
                                  env={**os.environ, "processes": str(processes), "pid": str(shell.pid)})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout

        self.assertEqual(run("cat $processes/list"), f"PID\n{shell.pid}\n")
        self.assertEqual(run("ls $processes/$pid"), "0\n")
        statistics = lambda: dict(line.split(": ") for line in run("cat $processes/$pid/0/gcgroup.stat").splitlines())
        wait_for("its work to be seen to have ended", lambda: statistics()["nr_pending_kernels"] == "0")
        stat = statistics()
        self.assertEqual(list(stat), ["nr_submitted_kernels", "nr_ended_kernels", "nr_pending_kernels"])
        self.assertGreater(int(stat["nr_submitted_kernels"]), 0)
        self.assertEqual(stat["nr_submitted_kernels"], stat["nr_ended_kernels"])
        self.assertGreaterEqual(int(run("cat $processes/$pid/0/memory.current")), 256 * MIB)
        self.assertEqual(run("cat $processes/$pid/0/memory.swap.current"), "0\n")
        self.assertEqual(run("cat $processes/$pid/0/memory.limit"), UNLIMITED)
        run("echo 2000000000 | tee $processes/$pid/0/memory.limit")
        self.assertEqual(run("cat $processes/$pid/0/memory.limit"), "2000000000\n")
        self.assertEqual(self.vgpu("team")["memory_limit_bytes"], 2_000_000_000)
        self.assertEqual(run("cat $processes/$pid/0/compute.priority"), "8\n")
        run("echo 2 > $processes/$pid/0/compute.priority")
        self.assertEqual(self.vgpu("team")["compute_priority"], 2)
        run("echo 1 | tee $processes/$pid/0/compute.freeze")
        self.assertEqual(self.managed()[0]["frozen"], ["operator"])
        run("echo 0 | tee $processes/$pid/0/compute.freeze")
        self.assertEqual(self.managed()[0]["frozen"], [])
        run("echo 200000000 > $processes/$pid/0/memory.limit")  # returns when the rest has left the GPU
        self.assertLessEqual(int(run("cat $processes/$pid/0/memory.current")), 200_000_000)
        self.assertGreaterEqual(int(run("cat $processes/$pid/0/memory.swap.current")), 128 * MIB)
        shell.ok("launch", 1)
        shell.ok("sync")
        shell.end()
        wait_for("its directory to go", lambda: not (processes / str(shell.pid)).exists())
        self.assertEqual(run("cat $processes/list"), "PID\n")

    def test_who_waits_for_a_higher_class_has_pressure(self):
        self.start()
        self.create("high", compute_priority=2)
        self.create("low", compute_priority=9)

        def total(name):
            (line,) = self.read(f"vgpus/{name}/compute.pressure").splitlines()
            self.assertRegex(line, r"^some avg10=\d+\.\d\d avg60=\d+\.\d\d avg300=\d+\.\d\d total=\d+$")
            return int(line.rpartition("=")[2])

        low = self.tenant_in("low")
        low.makes_progress()
        self.assertEqual(total("low"), 0)
        high = self.tenant_in("high")
        high.makes_progress()
        wait_for("the lower class to have waited", lambda: total("low") > 100_000)
        self.assertEqual(total("high"), 0)
        self.assertGreater(self.vgpu("low")["compute_pressure"]["some_total_us"], 100_000)
        high.finish()
        low.makes_progress()
        low.finish()

    def test_vgpus_as_of_control_groups(self):
        self.start()
        vgpus = self.files / "vgpus"
        self.assertEqual(os.listdir(vgpus), [])
        os.mkdir(vgpus / "team")
        self.refused(errno.EEXIST, os.mkdir, vgpus / "team")
        self.refused(errno.EINVAL, os.mkdir, vgpus / "a b")
        self.refused(NOT_WRITABLE, os.mkdir, vgpus / "team" / "below")
        self.refused(NOT_WRITABLE, os.mkdir, self.files / "processes" / "team")
        self.assertEqual(self.vgpu("team")["uid"], os.getuid())
        self.write("vgpus/team/memory.limit", "1G\n")
        self.write("vgpus/team/compute.request", "30\n")
        self.write("vgpus/team/compute.weight", "250\n")
        vgpu = self.vgpu("team")
        self.assertEqual([vgpu[key] for key in ("memory_limit_bytes", "compute_request_pct", "compute_weight")],
                         [GIB, 30, 250])
        for code, path, text in ((errno.EINVAL, "memory.limit", "much\n"), (errno.EINVAL, "memory.limit", "\n"),
                                 (errno.ERANGE, "compute.priority", "16\n"), (errno.ENOSPC, "memory.limit", "40G\n"),
                                 (errno.EACCES, "memory.peak", "1\n"), (errno.ESRCH, "procs", "1\n")):
            with self.subTest(path=path, text=text):
                self.refused(code, self.write, f"vgpus/team/{path}", text)
        self.assertEqual(self.vgpu("team"), vgpu)

        shell = self.shell_with_context("team")
        self.assertEqual(self.read("vgpus/team/procs"), f"{shell.pid}\n")
        self.refused(errno.EBUSY, self.write, "vgpus/team/procs", f"{shell.pid}\n")
        self.refused(errno.EBUSY, os.rmdir, vgpus / "team")
        shell.end()
        wait_for("it to leave", lambda: self.read("vgpus/team/procs") == "")
        os.rmdir(vgpus / "team")
        self.assertEqual(os.listdir(vgpus), [])
        self.assertEqual(self.api("GET", "/v1/vgpus")[2]["vgpus"], [])

    def test_what_nobody_may_do(self):
        self.start()
        self.create("team")
        team = self.files / "vgpus" / "team"
        self.refused(errno.ENOENT, os.stat, self.files / "none")
        self.refused(errno.EACCES, os.open, team / "none", os.O_WRONLY | os.O_CREAT)
        self.refused(NOT_WRITABLE, os.unlink, team / "procs")
        self.refused(errno.EPERM, os.rename, team, self.files / "vgpus" / "other")
        self.refused(errno.EPERM, os.chmod, team / "procs", 0o666)
        self.refused(errno.EPERM, os.chown, team / "procs", 1, 1)
        self.refused(NOT_WRITABLE, os.symlink, "x", team / "link")
        self.refused(NOT_WRITABLE, os.rmdir, self.files / "vgpus")
        self.refused(errno.EISDIR, os.open, team, os.O_WRONLY)

    @unittest.skipUnless(os.getuid() == 0, "only root can be somebody else")
    def test_others_are_kept_out_as_from_the_api(self):
        self.start(config="access.users = false\n")
        os.chmod(self.run_dir, 0o755)
        done = subprocess.run(["ls", self.files], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                              text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Permission denied", done.stderr)

    @unittest.skipUnless(os.getuid() == 0, "only root can be somebody else")
    def test_the_group_of_the_api_may_do_as_much_here(self):
        self.start(config=f'api.group = "{grp.getgrgid(NOBODY).gr_name}"\n')
        os.chmod(self.run_dir, 0o755)
        script = 'mkdir vgpus/theirs && echo 1G > vgpus/theirs/memory.limit && cat vgpus/theirs/memory.limit'
        done = subprocess.run(["sh", "-ec", script], cwd=self.files, user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{GIB}\n", ""))
        self.assertEqual(self.vgpu("theirs")["uid"], NOBODY)
        self.assertEqual(oct(os.stat(self.files / "vgpus/theirs/memory.limit").st_mode), "0o100660")

    def test_what_one_reads_is_one_state(self):
        self.start()
        self.create("team", compute_weight=100)
        with open(self.files / "vgpus/team/compute.weight", "rb", buffering=0) as file:
            self.assertEqual(file.read(1), b"1")
            self.write("vgpus/team/compute.weight", "777\n")
            self.assertEqual(file.read(100), b"00\n")
            file.seek(0)
            self.assertEqual(file.read(100), b"777\n")

    def test_many_at_once(self):
        self.start()

        def use(name):
            vgpu = self.files / "vgpus" / name
            for weight in range(1, 26):
                os.mkdir(vgpu)
                self.write(f"vgpus/{name}/compute.weight", f"{weight}\n")
                self.assertEqual((vgpu / "compute.weight").read_text(), f"{weight}\n")
                self.assertIn(name, os.listdir(self.files / "vgpus"))
                os.rmdir(vgpu)
            return True

        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.assertTrue(all(pool.map(use, (f"v{n}" for n in range(8)))))
        self.assertEqual(os.listdir(self.files / "vgpus"), [])

    def test_a_file_of_a_vgpu_that_is_gone(self):
        self.start()
        self.create("team")
        fd = os.open(self.files / "vgpus/team/compute.weight", os.O_RDWR)
        os.rmdir(self.files / "vgpus/team")
        self.refused(errno.ENODEV, os.read, fd, 100)
        self.refused(errno.ENODEV, os.write, fd, b"7\n")
        os.close(fd)


class Events(FilesTest):
    def test_an_event_wakes_who_polls(self):
        self.start()
        self.create("team", memory_limit="256M", memory_swap_max="0")
        shell = self.shell_with_context("team")
        with open(self.files / "vgpus/team/memory.events", "rb", buffering=0) as file:
            self.assertEqual(file.read(100), b"oom 0\n")
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            self.assertEqual(poll.poll(0), [])
            self.assertEqual(shell.ask("allocate", "alloc", GIB)["result"], OUT_OF_MEMORY)
            self.assertEqual(poll.poll(1000 * DEADLINE_S), [(file.fileno(), select.POLLPRI | select.POLLERR)])
            file.seek(0)
            text = file.read(100)
            self.assertRegex(text, rb"^oom [1-9]\d*\n$")
            self.assertEqual(poll.poll(0), [])

    def test_what_keeps_a_vgpu_off_its_gpu_wakes_who_polls(self):
        self.start()
        self.create("team", compute_limit=20)
        with open(self.files / "vgpus/team/compute.events", "rb", buffering=0) as file:
            self.assertEqual(file.read(100), b"throttled 0\npreempted 0\nfrozen 0\n")
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            tenant = self.tenant_in("team", "--memory", "64M")
            self.assertEqual(poll.poll(1000 * DEADLINE_S), [(file.fileno(), select.POLLPRI | select.POLLERR)])
            file.seek(0)
            self.assertRegex(file.read(100), rb"^throttled [1-9]\d*\n")
            stat = dict(line.split() for line in self.read("vgpus/team/compute.stat").splitlines())
            self.assertGreater(int(stat["throttled_usec"]), 0)
            self.assertLessEqual(int(stat["throttled_usec"]), int(stat["waited_usec"]) + 100_000)
            for frozen in ("1", "1", "0"):
                (self.files / "vgpus/team/compute.freeze").write_text(frozen)
            self.assertIn("frozen 1\n", self.read("vgpus/team/compute.events"))
            tenant.finish()

    def test_whoever_waits_is_woken_when_the_vgpu_goes(self):
        self.start()
        self.create("team")
        with open(self.files / "vgpus/team/memory.events", "rb", buffering=0) as file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            os.rmdir(self.files / "vgpus/team")
            self.assertTrue(poll.poll(1000 * DEADLINE_S))

    def test_nobody_looks_while_nobody_polls(self):
        self.start()
        self.create("team")

        def watches():
            names = set()
            for task in pathlib.Path(f"/proc/{self.daemon.pid}/task").iterdir():
                try:
                    names.add((task / "comm").read_text().strip())
                except OSError:  # it has just ended
                    continue
            return "files-watch" in names

        self.assertFalse(watches())
        with open(self.files / "vgpus/team/memory.events", "rb", buffering=0) as file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            self.assertEqual(poll.poll(10), [])
            wait_for("a thread that looks", watches)
        wait_for("that thread to end", lambda: not watches())


class Ends(FilesTest):
    def test_the_mount_ends_with_the_daemon_though_a_file_is_open(self):
        self.start()
        self.create("team")
        fd = os.open(self.files / "vgpus/team/memory.events", os.O_RDONLY)
        woken = []

        def wait():
            poll = select.poll()
            poll.register(fd, select.POLLPRI)
            woken.extend(poll.poll(1000 * DEADLINE_S))

        waiter = threading.Thread(target=wait)
        waiter.start()
        os.chdir(self.files)
        try:
            self.stop_daemon()
            self.assertEqual(self.daemon.returncode, 0)
        finally:
            os.chdir("/")
        waiter.join(DEADLINE_S)
        self.assertTrue(woken)
        self.refused(errno.ENOTCONN, os.pread, fd, 100, 0)
        self.refused(errno.ENOTCONN, os.close, fd)
        self.assertEqual(mounts(self.files), 0)
        self.assertFalse(self.files.exists())

    def test_what_a_killed_daemon_left_is_replaced(self):
        self.start()
        self.create("team")
        fd = os.open(self.files / "vgpus/team/procs", os.O_RDONLY)
        for _ in range(2):
            self.stop_daemon(signal.SIGKILL)
            self.refused(errno.ENOTCONN, os.listdir, self.files)
            self.start()
            self.assertEqual(os.listdir(self.files / "vgpus"), ["team"])
        self.refused(errno.ENOTCONN, os.close, fd)

    def test_the_mount_survives_clients(self):
        self.start()
        self.create("team")
        script = "import os, select, sys; f = open(sys.argv[1]); p = select.poll(); p.register(f, select.POLLPRI);" \
                 "print('waits', flush=True); p.poll()"
        for _ in range(3):
            child = self.spawn("python3", "-c", script, self.files / "vgpus/team/memory.events")
            self.assertEqual(child.stdout.readline(), "waits\n")
            child.kill()
            child.wait()
        self.assertEqual(self.read("vgpus/team/memory.events"), "oom 0\n")

    def test_somebody_else_unmounts(self):
        self.start()
        if os.getuid() != 0:
            self.skipTest("only root unmounts")
        subprocess.run(["umount", "-l", self.files], check=True)
        self.assertEqual(self.api("GET", "/healthz")[0], 200)
        self.stop_daemon()
        self.assertEqual(self.daemon.returncode, 0)


class NoFiles(FilesTest):
    def test_they_can_be_turned_off(self):
        self.start_daemon(config="files.enabled = false\n")
        self.assertEqual(mounts(self.files), 0)
        self.assertFalse(self.files.exists())

    def test_an_embedded_daemon_has_none(self):
        self.start_daemon("--exit-when-idle")
        self.assertEqual(mounts(self.files), 0)

    @unittest.skipUnless(os.getuid() == 0, "only root can hide /dev/fuse")
    def test_where_there_can_be_none_the_rest_is_served(self):
        if not pathlib.Path("/dev/fuse").exists():
            self.skipTest("/dev/fuse is not there to be hidden; the other tests saw the daemon without it")
        with open(self.run_dir / "daemon.log", "a") as log:
            self.daemon = self.spawn(
                "unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/fuse && exec "$0" "$@"', BIN / "tesserad",
                *self.DAEMON_FLAGS, "--run-dir", self.run_dir, stderr=log)
        wait_for("the daemon", lambda: self.daemon.poll() is not None or self.answers())
        self.assertRegex(self.daemon_log(), "warning: the files are not available: cannot mount .*/fs")
        self.create("team")
        self.assertEqual(mounts(self.files), 0)
        self.stop_daemon()
        self.assertEqual(self.daemon.returncode, 0)


if __name__ == "__main__":
    unittest.main()
