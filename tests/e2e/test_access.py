"""Access to vGPUs, files and sockets (docs/security-model.md): users without the group of operators, with it, and with the token."""
import errno
import fcntl
import grp
import http.client
import json
import os
import pathlib
import socket
import struct
import unittest

from harness import MIB, SoftGpuTest, mounts, wait_for
from test_daemon import ATTACH, HELLO, REFUSED, RESERVE, WELCOME, hello, kind_of, message, text_of

RETURN, CONTEXT, QUERY, GUARD, ATTACHED, RESERVED = 4, 5, 9, 11, 67, 68
EXPORT, UNEXPORT, IMPORT, EXPORTED, IMPORTED = 15, 16, 17, 72, 73
GROUP = grp.getgrgid(1)  # one that every Debian has
MEMBER, STRANGER, NOBODY = 4243, 4242, 65534  # the first two in no /etc/passwd
TOKEN = "0123456789abcdef"


def attach(uuid):
    return message(ATTACH, struct.pack("<16sQQQIIII64s", bytes.fromhex(uuid.removeprefix("GPU-").replace("-", "")), 0, 0, 0, 0, 0, 0, 0, b""))


@unittest.skipUnless(os.getuid() == 0, "only root can be several users")
class Access(SoftGpuTest):
    def setUp(self):
        super().setUp()
        self.run_dir.chmod(0o755)
        self.start_daemon(config=self.api_by_tcp(TOKEN, f'group = "{GROUP.gr_name}"\n'))
        wait_for("the daemon to be complete, with its files", lambda: f"serving {self.run_dir}" in self.daemon_log())
        self.uuid = self.api("GET", "/v1/gpus")[2]["gpus"][0]["uuid"]
        # Made by root for everybody, by somebody of the group, and by somebody who was of the group then.
        self.create("everybodys", memory_limit="1G")
        self.assertEqual(self.as_user(MEMBER, self.make, "members", group=True), 201)
        self.assertEqual(self.as_user(STRANGER, self.make, "strangers", group=True), 201)
        self.victim = self.attached("members")
        self.victim.send(message(RESERVE, struct.pack("<Q", 64 * MIB)))
        self.assertEqual(kind_of(self.victim.recv(8192)), RESERVED)
        self.before = self.state()

    def tearDown(self):
        if hasattr(self, "victim"):
            self.victim.close()
        super().tearDown()

    def make(self, name):
        return self.api("POST", "/v1/vgpus", {"name": name})[0]

    def state(self):
        """All that strangers might want to change."""
        kept = ("name", "uid", "tag", "memory_current_bytes", "processes", "frozen")
        return ([[vgpu[key] for key in kept] for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]],
                [[process[key] for key in ("pid", "vgpu", "frozen")] for process in self.managed()])

    def nothing_changed(self):
        self.assertEqual(self.state(), self.before)

    def as_user(self, uid, action, *arguments, group=False, **named):
        """As in the harness; with the group of the operators, or with that user's own alone."""
        return super().as_user(uid, action, *arguments, groups=[GROUP.gr_gid] if group else [], **named)

    # ---- the API ----

    def connects(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.run_dir / "api.sock"))
            return "connected"

    def test_the_socket_of_the_api_is_for_all_users_or_for_its_group(self):
        def mode():
            return oct(os.stat(self.run_dir / "api.sock").st_mode & 0o777)

        self.assertEqual(mode(), "0o666")
        self.assertEqual(self.as_user(STRANGER, self.connects), "connected")
        self.victim.close()
        self.stop_daemon()
        config = (self.run_dir / "config.toml").read_text()
        self.start_daemon(config=config + "[access]\nusers = false\n")
        self.assertEqual(mode(), "0o660")
        for uid in (STRANGER, NOBODY, MEMBER):
            self.assertEqual(self.as_user(uid, self.connects), "PermissionError", uid)
        self.assertEqual(self.as_user(MEMBER, self.connects, group=True), "connected")
        # Programs go on joining what is theirs.
        self.assertEqual(self.as_user(STRANGER, self.answer, hello("strangers"))[0], WELCOME)

    def test_who_has_the_group_may_do_everything(self):
        def all_of_it():
            shown = self.api("GET", "/v1/vgpus/strangers")
            return [shown[0], shown[2]["uid"], self.api("PATCH", "/v1/vgpus/everybodys", {"compute_weight": 7})[0],
                    self.api("POST", "/v1/vgpus/strangers/freeze")[0], self.api("POST", "/v1/vgpus/strangers/thaw")[0],
                    self.api("DELETE", "/v1/vgpus/strangers")[0], self.make("another"), self.api("GET", "/v1/processes")[0],
                    self.api("POST", "/v1/reload")[0]]

        self.assertEqual(self.as_user(MEMBER, all_of_it, group=True), [200, STRANGER, 200, 204, 204, 204, 201, 200, 200])
        self.assertEqual(self.vgpu("everybodys")["compute_weight"], 7)
        self.assertEqual(self.vgpu("another")["uid"], MEMBER)
        self.assertEqual(self.api("GET", "/v1/vgpus/strangers")[0], 404)

    def test_by_tcp_the_token_is_who_one_is(self):
        def ask(method, path, headers, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request(method, path, body, headers)
            status = connection.getresponse().status
            connection.close()
            return status

        wanted = [("GET", "/v1/vgpus", None), ("GET", "/metrics", None), ("GET", "/v1/nothing", None), ("POST", "/v1/vgpus", "{}"),
                  ("DELETE", "/v1/vgpus/strangers", None), ("PATCH", "/v1/vgpus/members", "{}"), ("GET", "/v1/events", None),
                  ("POST", "/v1/vgpus/members/freeze", ""), ("POST", "/v1/reload", ""), ("GET", "/v1/trace", None)]
        for authorization in (None, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN):
            headers = {} if authorization is None else {"Authorization": authorization}
            for uid in (0, STRANGER):  # root first: what Python looks up for it others cannot read
                asked = lambda: [ask(method, path, headers, body) for method, path, body in wanted]
                self.assertEqual(self.as_user(uid, asked) if uid else asked(), [401] * len(wanted), authorization)
        self.nothing_changed()
        self.assertEqual(self.as_user(STRANGER, ask, "GET", "/healthz", {}), 200)
        self.assertEqual(self.as_user(STRANGER, ask, "GET", "/v1/vgpus", {"Authorization": f"Bearer {TOKEN}"}), 200)

    # ---- files ----

    def attempts(self, paths):
        """Tries each action on each path; the names of those that did not fail."""
        done = []
        for path in map(str, paths):
            for name, action in (("read", lambda: os.close(os.open(path, os.O_RDONLY))), ("write", lambda: os.close(os.open(path, os.O_WRONLY))),
                                 ("list", lambda: os.listdir(path)), ("make", lambda: os.mkdir(path + "/new")),
                                 ("create", lambda: os.close(os.open(path + "/new", os.O_WRONLY | os.O_CREAT))),
                                 ("remove", lambda: os.rmdir(path)), ("unlink", lambda: os.unlink(path)),
                                 ("rename", lambda: os.rename(path, path + "x")), ("cut", lambda: os.truncate(path, 0)),
                                 ("mode", lambda: os.chmod(path, 0o777)), ("owner", lambda: os.chown(path, STRANGER, -1)),
                                 ("times", lambda: os.utime(path))):
                try:
                    action()
                    done.append([name, path])
                except OSError:
                    pass
        return done

    def test_files_are_for_operators_and_owners(self):
        files = self.run_dir / "fs"
        if mounts(files) != 1:
            self.skipTest("there can be no files here")
        paths = [files, *sorted(files.rglob("*"))]
        self.assertGreater(len(paths), 50)
        folders = [files, files / "processes", files / "vgpus"]

        def seen():
            return sorted(str(path.relative_to(files)) for path in files.rglob("*") if path.is_dir())

        def attempts():
            before = seen()
            done = [[what, path] for what, path in self.attempts([path for path in paths if path not in folders]) if "/list" not in path]
            return [before, [each for each in done if "everybodys" not in each[1]], [each for each in done if "everybodys" in each[1]]]

        for uid in (NOBODY, STRANGER):
            mine = ["vgpus/strangers"] if uid == STRANGER else []
            folders_seen, done, shared = self.as_user(uid, attempts)
            self.assertEqual(folders_seen, sorted(["processes", "vgpus", "vgpus/everybodys", *mine]))
            self.assertEqual({what for what, _ in shared}, {"read", "list"}, "what is for everybody is only read")
            self.assertEqual({pathlib.Path(path).relative_to(files).parts[1] for _, path in done}, set(map(os.path.basename, mine)))
        # It removed its own vGPU.
        self.assertEqual(self.as_user(STRANGER, self.make, "strangers"), 201)

        def use():
            (files / "vgpus/strangers/compute.weight").write_text("9\n")
            os.mkdir(files / "vgpus/new")
            unreadable = []
            for path in paths:
                try:
                    path.read_bytes() if path.is_file() else os.listdir(path)
                except OSError as error:
                    unreadable.append(f"{path}: {error}")
            return unreadable

        self.assertEqual(self.as_user(MEMBER, use, group=True), [])
        self.assertEqual(self.vgpu("strangers")["compute_weight"], 9)
        self.assertEqual(self.vgpu("new")["uid"], MEMBER)

        def own():
            (files / "vgpus/strangers/compute.weight").write_text("5\n")
            os.mkdir(files / "vgpus/mine")
            try:
                (files / "vgpus/strangers/compute.priority").write_text("1\n")
            except OSError as error:
                return [os.stat(files / "vgpus/mine").st_uid, error.errno]

        self.assertEqual(self.as_user(STRANGER, own), [STRANGER, errno.EDQUOT])
        self.assertEqual(self.vgpu("strangers")["compute_weight"], 5)

    def test_what_else_lies_in_the_run_directory(self):
        paths = [self.run_dir, *(path for path in self.run_dir.rglob("*") if "fs" not in path.parts)]
        self.assertIn(self.run_dir / "trace.ring", paths)
        self.assertIn(self.run_dir / "state.json", paths)
        harness = {"daemon.log", "config.toml"}  # made by this test, not by the daemon
        for uid in (STRANGER, NOBODY, MEMBER):
            done = [[what, path] for what, path in self.as_user(uid, self.attempts, paths, group=uid == MEMBER)
                    if pathlib.Path(path).name not in harness]
            folders = [self.run_dir, self.run_dir / "programs"]
            expected = [[what, str(path)] for path in folders for what in ("read", "list")]
            # Of sockets that one may write to.
            expected += [["times", str(path / name)] for path in folders for name in ("client.sock", "requests.sock")]
            expected += [["times", str(self.run_dir / "api.sock")]]
            self.assertEqual(sorted(done), sorted(expected), uid)
        self.nothing_changed()

    def test_nobody_else_can_hold_the_lock_of_the_next_daemon(self):
        def lock():
            with open(self.run_dir / "tesserad.lock") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

        self.assertEqual(self.as_user(STRANGER, lock), "PermissionError")
        # As one of an earlier version left it.
        self.victim.close()
        self.stop_daemon()
        (self.run_dir / "tesserad.lock").chmod(0o644)
        self.start_daemon("--config", self.run_dir / "config.toml")
        self.assertEqual(self.as_user(STRANGER, lock), "PermissionError")

    # ---- client.sock ----

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(60)
        connection.connect(str(self.run_dir / "client.sock"))
        return connection

    def attached(self, vgpu):
        connection = self.connect()
        connection.send(hello(vgpu))
        assert kind_of(connection.recv(8192)) == WELCOME
        connection.send(attach(self.uuid))
        packet, fds, _, _ = socket.recv_fds(connection, 8192, 4)
        assert kind_of(packet) == ATTACHED, packet
        for fd in fds:
            os.close(fd)
        return connection

    def answer(self, *packets, in_vgpu=None):
        """The kind of the last answer, with its text if it is a refusal; "closed" when the daemon ends the connection."""
        with (self.attached(in_vgpu) if in_vgpu else self.connect()) as connection:
            said = b""
            for packet in packets:
                connection.send(packet)
                said = connection.recv(8192)
                if not said:
                    return "closed"
            return [kind_of(said), text_of(said) if kind_of(said) == REFUSED else ""]

    def test_a_vgpu_of_another_user_cannot_be_joined(self):
        observer = message(HELLO, struct.pack("<iI512s64s", 1, 1, b"members", b"test"))
        guard = message(GUARD, struct.pack("<512s64s", b"members", b"test"))
        both = hello("strangers,members")
        for uid in (STRANGER, NOBODY):
            for greeting in (hello("members"), observer, guard):
                kind, text = self.as_user(uid, self.answer, greeting)
                self.assertEqual(kind, REFUSED)
                self.assertIn("there is no vGPU members", text)
        self.assertEqual(self.as_user(STRANGER, self.answer, both)[0], REFUSED)
        self.assertEqual(self.as_user(NOBODY, self.answer, hello("strangers"))[0], REFUSED)
        self.nothing_changed()
        self.assertEqual(self.as_user(NOBODY, self.answer, hello("members"), group=True)[0], WELCOME, "an operator")
        for name in ("strangers", "everybodys"):
            self.assertEqual(self.as_user(STRANGER, self.answer, hello(name))[0], WELCOME, "what is one's own")

    def test_a_program_acts_on_itself_alone(self):
        def ours():
            packet = struct.pack("<iI512s64s", self.victim_pid, 0, b"everybodys", b"test")  # who it is not
            with self.connect() as connection:
                connection.send(message(HELLO, packet))
                assert kind_of(connection.recv(8192)) == WELCOME
                connection.send(attach(self.uuid))
                said, fds, _, _ = socket.recv_fds(connection, 8192, 4)
                for body in ((RETURN, struct.pack("<Q", 64 * MIB)), (CONTEXT, struct.pack("<iI", -1, 0)),
                             (RETURN, struct.pack("<Q", (1 << 64) - 1))):
                    connection.send(message(*body))
                connection.send(message(RESERVE, struct.pack("<Q", 4096)))
                return [kind_of(said), len(fds), os.getpid(), kind_of(connection.recv(8192))]

        self.victim_pid = os.getpid()
        kind, fds, pid, reserved = self.as_user(STRANGER, ours)
        self.assertEqual((kind, fds), (ATTACHED, 2), "a page of its own, and a line to the mover")
        self.assertIn(reserved, (RESERVED, None))
        self.assertNotEqual(pid, self.victim_pid)
        wait_for("it to leave", lambda: self.state() == self.before)

        # Nothing can be asked for without a vGPU, nor of another than one's own.
        for packet in (attach(self.uuid), message(RESERVE, struct.pack("<Q", 4096)), message(RETURN, struct.pack("<Q", MIB)),
                       message(QUERY, bytes(16)), message(IMPORT, bytes(24))):
            self.assertEqual(self.as_user(STRANGER, self.answer, packet), "closed")
        self.assertEqual(self.as_user(STRANGER, self.answer, hello("everybodys"), hello("members")), "closed")
        self.assertEqual(self.state(), self.before)

    def test_memory_that_somebody_exports_is_for_programs_of_that_user(self):
        key = bytes(range(16))
        import_it = message(IMPORT, struct.pack("<16sII", key, 0, 0))
        memory = os.memfd_create("exported")
        os.truncate(memory, 2 * MIB)
        socket.send_fds(self.victim, [message(EXPORT, struct.pack("<16sQQQII", key, 2 * MIB, 0, 2 * MIB, 1, 0))], [memory])
        said = self.victim.recv(8192)
        os.close(memory)
        self.assertEqual(kind_of(said), EXPORTED, said)
        kind, text = self.as_user(STRANGER, self.answer, import_it, in_vgpu="everybodys")
        self.assertEqual(kind, REFUSED)
        # Only who exported it ends it.
        unexport = message(UNEXPORT, key)
        self.as_user(STRANGER, self.answer, unexport, in_vgpu="everybodys")
        self.assertEqual(self.answer(import_it, in_vgpu="members")[0], IMPORTED)

    def test_what_another_program_has_open_stays_its_own(self):
        shell = self.shell_with_context("everybodys")

        def pages(pid):
            """The shared pages that it has open or mapped, as far as this user can tell."""
            found = []
            for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
                try:
                    found += [name for name in os.listdir(folder) if "tessera-page" in os.readlink(f"{folder}/{name}")]
                except PermissionError:
                    found.append("PermissionError")
            return found

        pids = (shell.pid, self.daemon.pid)
        for pid in pids:
            self.assertGreater(len(pages(pid)), 0, "root sees it")
            self.assertNotIn("PermissionError", pages(pid))
            for uid in (STRANGER, NOBODY, MEMBER):
                self.assertEqual(self.as_user(uid, pages, pid, group=True), ["PermissionError"] * 2, uid)
        shell.end()


if __name__ == "__main__":
    unittest.main()
