"""tessera-checkpoint: takes programs off their GPUs and puts them on others, by the driver's calls."""
import errno
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import (BIN, DEADLINE_S, INVALID_VALUE, LIB, MIB, OUT_OF_MEMORY, SOFT, SUCCESS, Shell,  # noqa: E402
                     SoftGpuTest, wait_for)

PROGRAM = LIB / "tessera" / "tessera-checkpoint"
DRIVERS = LIB / "tests" / "drivers"

# As in src/wire/checkpoint.h.
STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK = range(1, 6)
READY, FAILED, DONE = range(1, 4)
PAIRS = 16
REQUEST = struct.Struct(f"=IiII{PAIRS * 32}s")
ANSWER = struct.Struct("=IIiiiiq192s")

# CUprocessState and CUresult.
RUNNING, LOCKED, CHECKPOINTED, LOST, UNKNOWN_STATE = 0, 1, 2, 3, -1
NEEDS_NEWER_DRIVER, ILLEGAL_STATE, NOT_READY, UNKNOWN_ERROR = 36, 401, 600, 999

UUIDS = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
uuid = (ctypes.c_char * 16)()
assert cuda.cuInit(0) == 0
for device in range(2):
    assert cuda.cuDeviceGetUuid(uuid, device) == 0
    print(bytes(uuid).hex())
"""


class Checkpointer:
    """A tessera-checkpoint, and the daemon's end of its socket."""

    def __init__(self, test, *flags, **env):
        self.socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        test.addCleanup(self.socket.close)
        self.socket.settimeout(DEADLINE_S)
        with its, os.fdopen(fcntl.fcntl(its.fileno(), fcntl.F_DUPFD, 10)) as other:
            fd = other.fileno()
            self.child = test.spawn("bash", "-c", f'exec "$0" "$@" 3<&{fd} {fd}<&-', PROGRAM, *flags, env=env, pass_fds=[fd])
        self.first = self.hear()

    @property
    def pid(self):
        return self.child.pid

    def hear(self):
        """The next answer; None at the end."""
        try:
            packet = self.socket.recv(ANSWER.size + 1)
        except ConnectionResetError:  # it ended with a request unread
            packet = b""
        if not packet:
            return None
        type_, operation, pid, result, state, error, took_ns, text = ANSWER.unpack(packet)
        return {"type": type_, "operation": operation, "pid": pid, "result": result, "state": state, "error": error,
                "took_ns": took_ns, "text": text.rstrip(b"\0").decode()}

    def send(self, operation, pid, timeout_ms=0, pairs=()):
        self.socket.send(REQUEST.pack(operation, pid, timeout_ms, len(pairs), b"".join(old + new for old, new in pairs)))

    def begin(self, operation, pid):
        """Returns when it is at it."""
        self.send(operation, pid)
        wait_for("the request to be read", lambda: not struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0])

    def ask(self, operation, pid, **more):
        """The result, and the program's state after that."""
        self.send(operation, pid, **more)
        answer = self.hear()
        assert (answer["type"], answer["operation"], answer["pid"]) == (DONE, operation, pid), answer
        return answer["result"], answer["state"]


class CheckpointTest(SoftGpuTest):
    SPEC = "2x1GiB,context=8MiB"
    WORD = 1234567

    def checkpointer(self, *flags, **env):
        made = Checkpointer(self, *(flags or ("--soft",)), **env)
        self.assertEqual(made.first["type"], READY, made.first)
        return made

    def program(self, device=0, **env):
        """A driver_shell with memory on this device."""
        shell = Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env={"LD_LIBRARY_PATH": SOFT.parent, **env}))
        shell.ok("init")
        shell.ok("primary", device)
        shell.memory = shell.filled(64 * MIB, self.WORD)
        shell.ok("launch", 3)
        return shell

    def swapped(self):
        """Pairs by which each GPU's programs go to the other GPU."""
        told = subprocess.run([sys.executable, "-c", UUIDS, SOFT], env=self.env, capture_output=True, text=True, check=True)
        first, second = (bytes.fromhex(line) for line in told.stdout.split())
        return [(first, second), (second, first)]

    def take_off(self, checkpointer, pid):
        self.assertEqual(checkpointer.ask(LOCK, pid, timeout_ms=5000), (SUCCESS, LOCKED))
        self.assertEqual(checkpointer.ask(CHECKPOINT, pid), (SUCCESS, CHECKPOINTED))

    def put_back(self, checkpointer, pid, **where):
        self.assertEqual(checkpointer.ask(RESTORE, pid, **where), (SUCCESS, LOCKED))
        self.assertEqual(checkpointer.ask(UNLOCK, pid), (SUCCESS, RUNNING))

    def goes_on(self, shell):
        """It has what it had, and works."""
        self.assertEqual(shell.ok("compare", shell.memory, self.WORD)["wrong"], 0)
        shell.ok("launch", 2)
        self.assertEqual(shell.ok("count")["count"], 5)

    def is_free(self, device, bytes_):
        """Whether another program gets so much memory there."""
        shell = Shell(self.spawn(BIN / "driver_shell", stdin=subprocess.PIPE, env={"LD_LIBRARY_PATH": SOFT.parent}))
        shell.ok("init")
        shell.ok("primary", device)
        result = shell.ask("allocate", "alloc", bytes_)["result"]
        shell.end()
        return result == SUCCESS

    def test_a_program_goes_to_the_other_gpu(self):
        checkpointer, shell = self.checkpointer(), self.program()
        self.assertEqual(checkpointer.ask(STATE, shell.pid), (SUCCESS, RUNNING))
        self.take_off(checkpointer, shell.pid)
        self.assertTrue(self.is_free(0, 1000 * MIB), "nothing of it is left there")
        shell.send("compare", shell.memory, self.WORD)  # waits
        self.assertEqual(checkpointer.ask(STATE, shell.pid), (SUCCESS, CHECKPOINTED))
        self.put_back(checkpointer, shell.pid, pairs=self.swapped())
        self.assertEqual(shell.answer(), {"result": SUCCESS, "wrong": 0})
        self.goes_on(shell)
        self.assertTrue(self.is_free(0, 1000 * MIB))
        self.assertFalse(self.is_free(1, 1000 * MIB), "it is here now")
        shell.end()

    def test_steps_in_another_order(self):
        checkpointer, shell = self.checkpointer(), self.program()
        self.assertEqual(checkpointer.ask(CHECKPOINT, shell.pid), (ILLEGAL_STATE, RUNNING))
        self.assertEqual(checkpointer.ask(UNLOCK, shell.pid), (ILLEGAL_STATE, RUNNING))
        self.take_off(checkpointer, shell.pid)
        self.assertEqual(checkpointer.ask(LOCK, shell.pid), (ILLEGAL_STATE, CHECKPOINTED))
        self.put_back(checkpointer, shell.pid)
        self.goes_on(shell)

    def test_programs_that_it_does_not_know(self):
        checkpointer = self.checkpointer()
        other = self.spawn("sleep", "100")
        for pid in (other.pid, 0x3fffff, 0, -1):
            for operation in (STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK):
                self.assertEqual(checkpointer.ask(operation, pid), (INVALID_VALUE, UNKNOWN_STATE), (operation, pid))

    def test_work_that_does_not_end_in_time(self):
        checkpointer, shell = self.checkpointer(), self.program()
        shell.ok("hold")
        self.assertEqual(checkpointer.ask(LOCK, shell.pid, timeout_ms=50), (NOT_READY, RUNNING))
        shell.ok("let_go")
        self.take_off(checkpointer, shell.pid)
        self.put_back(checkpointer, shell.pid)
        self.goes_on(shell)

    def test_a_gpu_without_room(self):
        checkpointer, shell, other = self.checkpointer(), self.program(), self.program(device=1)
        other.ok("allocate", "alloc", 900 * MIB)
        self.take_off(checkpointer, shell.pid)
        self.assertEqual(checkpointer.ask(RESTORE, shell.pid, pairs=self.swapped()), (OUT_OF_MEMORY, CHECKPOINTED))
        self.put_back(checkpointer, shell.pid)
        self.goes_on(shell)

    def test_a_program_that_is_lost(self):
        checkpointer = self.checkpointer()
        shell = self.program(TESSERA_SOFT_CHECKPOINT="restore=CUDA_ERROR_UNKNOWN:lost")
        self.take_off(checkpointer, shell.pid)
        self.assertEqual(checkpointer.ask(RESTORE, shell.pid), (UNKNOWN_ERROR, LOST))
        self.assertEqual(checkpointer.ask(STATE, shell.pid), (SUCCESS, LOST))

    def test_it_finishes_its_call_when_the_daemon_is_gone(self):
        checkpointer, shell = self.checkpointer(), self.program(TESSERA_SOFT_CHECKPOINT="checkpoint=500ms")
        self.assertEqual(checkpointer.ask(LOCK, shell.pid), (SUCCESS, LOCKED))
        checkpointer.begin(CHECKPOINT, shell.pid)
        checkpointer.socket.close()
        self.assertEqual(checkpointer.child.stdout.read(), "", "who reads the daemon's output does not wait for the call")
        self.assertEqual(checkpointer.child.wait(DEADLINE_S), 0)
        another = self.checkpointer()
        self.assertEqual(another.ask(STATE, shell.pid), (SUCCESS, CHECKPOINTED))
        self.put_back(another, shell.pid)
        self.goes_on(shell)

    def test_it_is_killed_in_a_call(self):
        checkpointer, shell = self.checkpointer(), self.program(TESSERA_SOFT_CHECKPOINT="checkpoint=500ms")
        self.assertEqual(checkpointer.ask(LOCK, shell.pid), (SUCCESS, LOCKED))
        checkpointer.begin(CHECKPOINT, shell.pid)
        os.kill(checkpointer.pid, signal.SIGKILL)
        self.assertIsNone(checkpointer.hear())
        # Whether the call got as far as the program, the next one is told.
        another = self.checkpointer()
        result, state = another.ask(STATE, shell.pid)
        self.assertEqual(result, SUCCESS)
        self.assertIn(state, (LOCKED, CHECKPOINTED))
        if state == LOCKED:
            another.ask(CHECKPOINT, shell.pid)  # its own, or too late
        wait_for("the checkpoint", lambda: another.ask(STATE, shell.pid) == (SUCCESS, CHECKPOINTED))
        self.put_back(another, shell.pid)
        self.goes_on(shell)

    def test_the_program_is_killed_in_a_call(self):
        checkpointer, shell = self.checkpointer(), self.program(TESSERA_SOFT_CHECKPOINT="checkpoint=60s")
        self.assertEqual(checkpointer.ask(LOCK, shell.pid), (SUCCESS, LOCKED))
        checkpointer.begin(CHECKPOINT, shell.pid)
        shell.child.kill()
        shell.child.wait()
        answer = checkpointer.hear()
        self.assertEqual((answer["result"], answer["state"]), (INVALID_VALUE, UNKNOWN_STATE))
        self.assertTrue(self.is_free(0, 1000 * MIB))

    def test_older_drivers(self):
        old = Checkpointer(self, TESSERA_REAL_LIBCUDA=str(DRIVERS / "550" / "libcuda.so.1"))
        self.assertEqual((old.first["type"], old.first["error"]), (FAILED, errno.EOPNOTSUPP))
        self.assertEqual(old.first["text"], "the CUDA driver has no function cuCheckpointProcessGetState; programs move with "
                                            "driver 570 or newer")
        self.assertIsNone(old.hear())
        self.assertEqual(old.child.wait(DEADLINE_S), 1)

        checkpointer = self.checkpointer(TESSERA_REAL_LIBCUDA=str(DRIVERS / "570" / "libcuda.so.1"))
        shell = self.program()
        self.take_off(checkpointer, shell.pid)
        self.assertEqual(checkpointer.ask(RESTORE, shell.pid, pairs=self.swapped()), (NEEDS_NEWER_DRIVER, CHECKPOINTED))
        self.put_back(checkpointer, shell.pid)
        self.goes_on(shell)

    def test_what_no_daemon_says(self):
        too_many = REQUEST.pack(RESTORE, 1, 0, PAIRS + 1, b"")
        for packet in (b"x", REQUEST.pack(UNLOCK + 1, 1, 0, 0, b""), REQUEST.pack(0, 1, 0, 0, b""), too_many):
            checkpointer = self.checkpointer()
            checkpointer.socket.send(packet)
            self.assertIsNone(checkpointer.hear())
            self.assertEqual(checkpointer.child.wait(DEADLINE_S), 1)
        done = subprocess.run([PROGRAM, "--hard"], capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stderr), (2, "usage: tessera-checkpoint [--soft] [--driver PATH]\n"))


if __name__ == "__main__":
    unittest.main()
