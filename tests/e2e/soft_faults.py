"""Faults of soft GPUs, which the daemon reads from a pipe ($TESSERA_SOFT_FAULTS)."""
import errno
import os

from harness import wait_for


def open_for_reader(fifo):
    """None while nobody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def write_line(fifo, line):
    """Fails if nobody reads it before the deadline; a blocking open would wait for ever."""
    with os.fdopen(wait_for("a reader of the faults", lambda: open_for_reader(fifo)), "w") as out:
        out.write(line + "\n")
