"""deploy/slurm: the scripts that make and remove a job's vGPUs, with Slurm's variables and without Slurm."""
import grp
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN, DEADLINE_S, GIB, LIB, MIB, SOFT, TENANT, SoftGpuTest, Tenant

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "deploy" / "slurm"
USER = 12345  # who has no entry in /etc/passwd


@unittest.skipIf(os.geteuid() != 0, "slurmd runs its scripts as root")
class Slurm(SoftGpuTest):
    SPEC = "2x4GiB,speed=4M"
    JOB = "4711"

    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)
        self.jobs = self.run_dir / "jobs"
        self.conf = self.run_dir / "slurm.conf"
        self.stand_in = self.run_dir / "stand_in"
        self.slurm_answers(0)
        self.configure()
        self.start("")

    def start(self, config):
        group = grp.getgrgid(65534).gr_name  # any that exists: whose members may use api.sock
        self.start_daemon(config=f'[api]\ngroup = "{group}"\n{config}')

    def slurm_answers(self, status):
        """A stand-in for scontrol, which answers this."""
        self.stand_in.mkdir(exist_ok=True)
        (self.stand_in / "asked").write_text("")
        scontrol = self.stand_in / "scontrol"
        scontrol.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >> {self.stand_in}/asked\nexit {status}\n')
        scontrol.chmod(0o755)

    def slurm_was_asked(self):
        return (self.stand_in / "asked").read_text().splitlines()

    def configure(self, more=""):
        self.conf.write_text(f"PATH={self.stand_in}:{BIN}:$PATH\nLIBRARIES={LIB / 'tessera'}\nJOBS={self.jobs}\n"
                             f"TESSERA_RUN_DIR={self.run_dir}\n{more}")

    def script(self, name, **variables):
        """Runs one as Slurm does: with its variables and little else."""
        slurm = {"SLURM_JOB_ID": self.JOB, "SLURM_JOB_UID": str(USER), "SLURM_JOB_GPUS": "0",
                 **{f"SLURM_JOB_{key}": value for key, value in variables.items()}}
        return subprocess.run([SCRIPTS / name, self.conf], env=slurm, cwd=self.run_dir, capture_output=True, text=True,
                              timeout=DEADLINE_S)

    def prolog(self, **variables):
        done = self.script("prolog.sh", **variables)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def task_prolog(self, expect=0):
        """The environment that a task gets, and the lines printed to it."""
        done = self.script("task-prolog.sh")
        self.assertEqual((done.returncode, done.stderr), (expect, ""))
        exports, printed = {}, []
        for line in done.stdout.splitlines():
            if found := re.fullmatch(r"export (\w+)=(.*)", line):
                exports[found[1]] = found[2]
            else:
                self.assertTrue(line.startswith("print "), line)
                printed.append(line[6:])
        return exports, printed

    def names(self):
        return {vgpu["name"] for vgpu in self.json("vgpu", "ls")["vgpus"]}

    def refused(self, **variables):
        """The message to the user of a job that gets no vGPU; the node is not drained."""
        self.prolog(**variables)
        self.assertEqual(self.names(), set())
        exports, (said,) = self.task_prolog(expect=1)
        self.assertEqual(exports["TESSERA_VGPU"], f"slurm-{self.JOB}-refused")
        return said

    def test_a_job_has_a_vgpu_on_each_of_its_gpus(self):
        self.prolog(GPUS="0,1", COMMENT="night run tessera:memory=512M,compute=30:60 v2")
        self.assertEqual(self.names(), {"slurm-4711-0", "slurm-4711-1"})
        for gpu in (0, 1):
            vgpu = self.vgpu(f"slurm-4711-{gpu}")
            self.assertEqual((vgpu["gpu"], vgpu["uid"], vgpu["memory_limit_bytes"]), (gpu, USER, 512 * MIB))
            self.assertEqual((vgpu["compute_request_pct"], vgpu["compute_limit_pct"]), (30, 60))
        exports, printed = self.task_prolog()
        self.assertEqual((exports["TESSERA_VGPU"], printed), ("slurm-4711-0,slurm-4711-1", []))
        self.assertEqual(self.script("epilog.sh").returncode, 0)
        self.assertEqual(self.names(), set())
        self.assertEqual(os.listdir(self.jobs), [])

    def test_a_job_of_several_gpus_is_a_gang(self):
        self.prolog(GPUS="0,1", COMMENT="tessera:memory=512M")
        self.assertEqual([self.vgpu(f"slurm-4711-{gpu}")["gang"] for gpu in (0, 1)], ["slurm-4711"] * 2)
        self.prolog(GPUS="1", COMMENT="tessera:memory=512M")
        self.assertIsNone(self.vgpu("slurm-4711-1")["gang"])
        self.prolog(GPUS="0,1", COMMENT="tessera:memory=512M,gang=no")
        self.assertIsNone(self.vgpu("slurm-4711-1")["gang"])
        self.configure("GANG=no\n")
        self.prolog(GPUS="0,1", COMMENT="tessera:memory=512M")
        self.assertIsNone(self.vgpu("slurm-4711-1")["gang"])
        self.prolog(GPUS="0,1", COMMENT="tessera:memory=512M,gang=yes")
        self.assertEqual(self.vgpu("slurm-4711-1")["gang"], "slurm-4711")

    def test_metrics_say_whose_job_it_is(self):
        self.prolog(USER="alice", ACCOUNT='a"b\n{}', PARTITION="gpu", COMMENT="tessera:memory=512M")
        self.assertEqual(self.vgpu("slurm-4711-0")["labels"],
                         {"slurm_user": "alice", "slurm_account": "a_b___", "slurm_partition": "gpu"})

    # ---- quotas, and jobs that have to wait ----

    def beside_another_job(self, quota, own, **variables):
        """The other job has 512 MiB; what the job is told that asks for `own`."""
        self.stop_daemon()
        self.start(quota)
        self.JOB = "4710"
        self.prolog(COMMENT="tessera:memory=512M,compute=30")
        self.JOB = "4711"
        self.prolog(COMMENT=f"tessera:{own}", **variables)
        self.assertEqual(self.names(), {"slurm-4710-0"})
        exports, (said,) = self.task_prolog(expect=1)
        self.assertEqual(exports["TESSERA_VGPU"], "slurm-4711-refused")
        return said

    def test_a_job_beyond_its_users_quota_waits_for_others(self):
        said = self.beside_another_job('[quota.default]\nmemory = "1G"\n', "memory=768M")
        why = "quota default allows memory of 1 GiB: 512 MiB in use, 768 MiB asked for"
        self.assertIn(f"it waits for others: {why}", said)
        again, comment = self.slurm_was_asked()
        self.assertEqual(again, "requeue 4711")
        self.assertRegex(comment, f"^update JobId=4711 AdminComment=tessera: [-0-9: ]{{19}}: not started: {why}")
        # Slurm ends the job, and later the other one ends.
        for job in ("4711", "4710"):
            self.JOB = job
            self.assertEqual(self.script("epilog.sh").returncode, 0)
        self.JOB = "4711"
        self.prolog(COMMENT="tessera:memory=768M")
        self.assertEqual((self.names(), self.task_prolog()[1], len(self.slurm_was_asked())), ({"slurm-4711-0"}, [], 2))

    def test_each_user_has_a_quota(self):
        self.stop_daemon()
        self.start('[quota.default]\nvgpus = 1\n')
        for job, user in (("4710", USER), ("4711", USER + 1), ("4712", USER)):
            self.JOB = job
            self.prolog(UID=str(user), COMMENT="tessera:memory=512M")
        self.assertEqual(self.names(), {"slurm-4710-0", "slurm-4711-0"})
        self.assertIn("quota default allows vgpus of 1: 1 in use", self.task_prolog(expect=1)[1][0])

    def test_a_job_for_which_others_leave_no_room_waits(self):
        said = self.beside_another_job("", "memory=512M,compute=80")
        self.assertIn("no GPU has room; GPU 0: compute.request 80 does not fit", said)
        self.assertEqual(self.slurm_was_asked()[0], "requeue 4711")
        self.slurm_answers(0)
        self.prolog(UID=str(USER + 1), COMMENT="tessera:memory=3900M")  # another user, whose quota allows it
        self.assertIn("cannot promise 3.8 GiB", self.task_prolog(expect=1)[1][0])
        self.assertEqual(self.slurm_was_asked()[0], "requeue 4711")

    def test_who_cannot_be_put_back_is_told(self):
        self.slurm_answers(1)  # as of a job of srun
        said = self.beside_another_job('[quota.default]\nmemory = "1G"\n', "memory=768M")
        self.assertIn("this job has no GPU: quota default allows", said)
        self.assertEqual(self.slurm_was_asked(), ["requeue 4711"])
        self.slurm_answers(0)
        self.configure("REQUEUE=no\n")
        self.prolog(COMMENT="tessera:memory=768M")
        self.assertIn("this job has no GPU: quota default allows", self.task_prolog(expect=1)[1][0])
        self.assertEqual(self.slurm_was_asked(), [])

    def test_who_would_wait_for_ever_is_told(self):
        self.stop_daemon()
        self.start('[quota.default]\nmemory = "1G"\n')
        self.assertIn("quota default allows memory of 1 GiB: 0 B in use, 2 GiB asked for", self.refused(COMMENT="tessera:memory=2G"))
        self.JOB = "4710"
        self.prolog(COMMENT="tessera:memory=512M")
        self.JOB = "4711"
        self.prolog(COMMENT="tessera:memory=5G")  # more than the GPU has
        self.assertIn("more than the GPU's", self.task_prolog(expect=1)[1][0])
        self.assertEqual(self.slurm_was_asked(), [])

    def test_roots_jobs_have_no_quota(self):
        self.stop_daemon()
        self.start('[quota.default]\nmemory = "1G"\n')
        self.prolog(UID="0", COMMENT="tessera:memory=2G")
        self.assertEqual(self.vgpu("slurm-4711-0")["uid"], 0)

    def test_quotas_may_be_for_others_than_jobs(self):
        self.stop_daemon()
        self.start('[quota.default]\nmemory = "1G"\nweight = 50\npriority = 9\n')
        self.prolog(COMMENT="tessera:memory=1G")
        vgpu = self.vgpu("slurm-4711-0")
        self.assertEqual((vgpu["compute_weight"], vgpu["compute_priority"]), (100, 8))  # the site's, not the user's
        self.configure("QUOTA=no\n")
        self.prolog(COMMENT="tessera:memory=2G")
        self.assertEqual(self.vgpu("slurm-4711-0")["memory_limit_bytes"], 2 * GIB)

    def test_its_tasks_run_in_it(self):
        self.prolog(COMMENT="tessera:memory=512M")
        exports, _ = self.task_prolog()
        task = Tenant(self.spawn(TENANT, env={**exports, "TESSERA_REAL_LIBCUDA": str(SOFT)}))
        task.makes_progress()
        (process,) = self.managed()
        self.assertEqual((process["pid"], process["vgpu"]), (task.pid, "slurm-4711-0"))
        self.assertEqual(self.script("epilog.sh").returncode, 0)
        self.assertEqual(self.names(), set())

    def test_without_a_comment_the_configuration_decides(self):
        self.configure("DEFAULT_MEMORY=1G\nDEFAULT_COMPUTE=10:50\nWEIGHT=200\nPRIORITY=9\n")
        self.prolog()
        vgpu = self.vgpu("slurm-4711-0")
        self.assertEqual((vgpu["memory_limit_bytes"], vgpu["compute_request_pct"]), (GIB, 10))
        self.assertEqual((vgpu["compute_weight"], vgpu["compute_priority"]), (200, 9))

    def test_vgpus_that_a_boot_has_left_over_are_removed(self):
        self.prolog(COMMENT="tessera:memory=3G")
        shutil.rmtree(self.jobs)  # as a boot does
        self.create("others", memory_limit="512M")
        self.JOB = "4712"
        self.prolog(COMMENT="tessera:memory=3G")
        self.assertEqual(self.names(), {"others", "slurm-4712-0"})

    def test_a_prolog_that_runs_again_makes_them_anew(self):
        self.prolog(GPUS="0-1", COMMENT="tessera:memory=512M")
        self.prolog(GPUS="1", COMMENT="tessera:memory=1G")
        self.assertEqual(self.names(), {"slurm-4711-1"})
        self.assertEqual(self.vgpu("slurm-4711-1")["memory_limit_bytes"], GIB)
        for _ in range(2):
            self.assertEqual(self.script("epilog.sh").returncode, 0)
        self.assertEqual(self.names(), set())

    def test_other_jobs_are_left_alone(self):
        self.jobs.mkdir()
        (self.jobs / "47110").write_text("vgpus slurm-47110-0\n")
        self.create("slurm-47110-0")
        self.create("x-slurm-4711-0")
        self.prolog()
        self.assertEqual(self.script("epilog.sh").returncode, 0)
        self.assertEqual(self.names(), {"slurm-47110-0", "x-slurm-4711-0"})

    def test_comments_are_not_trusted(self):
        for asked in ("memory=$(touch${IFS}pwned)", "memory=`touch${IFS}pwned`", "memory=1G;touch pwned", "memory=-1G", "*",
                      "memory=99999999999999G", "memory=", "memory=1G:2G", "compute=1000", "compute=30:", "compute=a[0]",
                      "memory=1G,memory=a[$(touch${IFS}pwned)]", "priority=0", "memory=1G\x1b[2J"):
            with self.subTest(asked):
                said = self.refused(COMMENT=f"tessera:{asked}")
                self.assertIn("not understood", said)
                self.assertTrue(said.isprintable())
        # Text behind a blank belongs to others.
        self.prolog(COMMENT="tessera:memory=1G --gpu 1\nexport PATH=/tmp; touch pwned")
        self.assertEqual((self.names(), self.vgpu("slurm-4711-0")["memory_limit_bytes"]), ({"slurm-4711-0"}, GIB))
        self.assertEqual(list(self.run_dir.glob("pwned")), [])

    def test_numbers_are_decimal(self):
        self.configure("MAX_MEMORY=100M\n")
        self.assertIn("100M", self.refused(COMMENT="tessera:memory=0128M"))
        self.prolog(COMMENT="tessera:memory=089M,compute=08")
        self.assertEqual(self.vgpu("slurm-4711-0")["memory_limit_bytes"], 89 * MIB)

    def test_there_is_a_most(self):
        self.configure("MAX_MEMORY=2G\nMAX_COMPUTE=50\n")
        self.assertIn("2G", self.refused(COMMENT="tessera:memory=3G"))
        self.assertIn("50 %", self.refused(COMMENT="tessera:compute=51"))

    def test_a_job_that_does_not_fit_is_told_why(self):
        self.create("other", gpu="0", compute_request="90")
        self.prolog(COMMENT="tessera:compute=20")
        exports, (said,) = self.task_prolog(expect=1)
        self.assertIn("90", said)
        self.assertEqual(self.slurm_was_asked(), [])  # no job's end would help
        # Where Slurm starts its tasks nonetheless, they find no GPU.
        done = self.spawn(TENANT, "--kernels", "1", env={**exports, "TESSERA_REAL_LIBCUDA": str(SOFT)})
        _, err = done.communicate(timeout=DEADLINE_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("slurm-4711-refused", err)

    def test_a_gpu_that_fails_takes_the_others_back(self):
        self.create("other", gpu="1", compute_request="90")
        self.prolog(GPUS="0,1", COMMENT="tessera:compute=20")
        self.assertEqual(self.names(), {"other"})
        self.task_prolog(expect=1)

    def test_jobs_without_gpus_are_none_of_ours(self):
        self.stop_daemon()
        for name in ("prolog.sh", "task-prolog.sh", "epilog.sh"):
            done = self.script(name, GPUS="")
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_a_job_whose_prolog_did_not_run_has_no_gpu(self):
        exports, (said,) = self.task_prolog(expect=1)
        self.assertEqual((exports["TESSERA_VGPU"], "not run its prolog" in said), ("slurm-4711-refused", True))

    def test_a_node_without_a_daemon_is_drained(self):
        self.prolog()
        self.stop_daemon()
        for name in ("prolog.sh", "epilog.sh"):
            (self.jobs / self.JOB).write_text("vgpus slurm-4711-0\n")
            done = self.script(name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(self.run_dir), done.stderr)

    def test_what_is_not_slurms_is_refused(self):
        for variables in ({"ID": "../../etc/passwd"}, {"UID": "root"}, {"GPUS": "all"}):
            with self.subTest(variables):
                self.assertEqual(self.script("prolog.sh", **variables).returncode, 1)
        self.assertEqual(self.names(), set())

    @unittest.skipIf(shutil.which("shellcheck") is None, "shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        done = subprocess.run(["shellcheck", "-x", "--source-path", REPOSITORY, *sorted(SCRIPTS.glob("*.sh"))],
                              capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
