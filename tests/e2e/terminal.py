"""A terminal for programs that draw: a pseudo-terminal, and what is on its screen."""
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

try:
    import pyte
except ImportError:  # a Python that is not the distribution's, whose packages serve as well
    sys.path.append("/usr/lib/python3/dist-packages")
    import pyte

DEADLINE_S = 60


class Terminal:
    """A program on a terminal of its own. `settings` are the terminal's before it began."""

    def __init__(self, command, env, width=80, height=24):
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.master, self.slave = pty.openpty()  # ours stays open: the settings can be read after the end
        self.resize(width, height)
        self.settings = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(self.slave, fd)
            os.closerange(3, 64)
            os.execve(command[0], [str(word) for word in command], env)
        self.status = None

    def resize(self, width, height):
        self.screen.resize(height, width)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def lines(self, what):
        """Those that have this in them."""
        return [line for line in self.text().splitlines() if what in line]

    def read(self, wait_s=0.05):
        """Takes what it writes, if it does so by then."""
        if select.select([self.master], [], [], wait_s)[0]:
            piece = os.read(self.master, 65536)
            self.written += piece
            self.stream.feed(piece)

    def until(self, what, condition, deadline_s=DEADLINE_S):
        """The value of condition() as soon as it is true of what it wrote by then."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            self.read()
        raise AssertionError(f"waited {deadline_s} s for {what} on\n{self.text()}")

    def shows(self, text):
        return self.until(repr(text), lambda: text in self.text())

    def ended(self):
        """Its exit status; None while it runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def end(self):
        """Its exit status, when it has ended and all that it wrote was read."""
        self.until("its end", lambda: self.ended() is not None)
        while select.select([self.master], [], [], 0)[0]:
            self.read()
        return self.status

    def settings_now(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.ended() is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            self.status = -9
        os.close(self.master)
        os.close(self.slave)
