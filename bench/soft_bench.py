"""What the benches share: a daemon on a soft GPU of its own, and the figures."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import uuid


class SoftBench:
    """`with` starts the daemon and ends it. The soft GPU is that of `spec`; `config` is the daemon's, as TOML."""

    def __init__(self, build, spec, config=""):
        self.bin, self.lib = build / "bin", build / "lib"
        self.run_dir = pathlib.Path(tempfile.mkdtemp(prefix="tessera-bench-"))
        self.name = uuid.uuid4().hex[:12]
        self.spec, self.config = spec, config
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        self.env.update(TESSERA_RUN_DIR=str(self.run_dir), TESSERA_SOFT=spec, TESSERA_SOFT_NAME=self.name)
        self.children, self.figures = [], {}

    def __enter__(self):
        config = self.run_dir / "config.toml"
        config.write_text(self.config)
        self.daemon = subprocess.Popen([self.bin / "tesserad", f"--soft={self.spec}", "--run-dir", self.run_dir, "--config", config],
                                       env=self.env, stderr=subprocess.DEVNULL)
        while subprocess.run([self.bin / "tessera", "gpus"], env=self.env, capture_output=True).returncode != 0:
            if self.daemon.poll() is not None:
                raise SystemExit("the daemon did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        self.daemon.terminate()
        self.daemon.wait()
        shutil.rmtree(self.run_dir, ignore_errors=True)
        for left in pathlib.Path("/dev/shm").glob(f"*{self.name}*"):
            left.unlink()

    def report(self, what, value, unit, baseline=""):
        self.figures[what] = {"value": value, "unit": unit, "baseline": baseline}
        print(f"{what:<58} {value:>10} {unit:<7} {baseline}", flush=True)
