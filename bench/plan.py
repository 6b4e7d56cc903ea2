#!/usr/bin/env python3
"""How fast plans are: a day of 114 programs at once, made up, packed and run in virtual time.

  bench/plan.py [--tessera build/release/bin/tessera] [--hours 24]

Fails below a million events a second of one processor, or if the day takes more than 30 s.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

LEAST_EVENTS, MOST_SECONDS = 1e6, 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/release/bin/tessera")
    parser.add_argument("--hours", type=int, default=24)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        day = str(pathlib.Path(folder) / "day.csv")
        subprocess.run([options.tessera, "plan", "--generate", "genai", "--for", f"{options.hours}h", "-o", day], check=True)
        begin = time.monotonic()
        done = subprocess.run([options.tessera, "plan", day, "--gpu", "h200", "--seconds", "1", "--json"], capture_output=True, text=True)
        seconds = time.monotonic() - begin
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        plan = json.loads(done.stdout)
    rate = plan["events"] / plan["simulating_s"]
    print(f"{options.hours} hours of {len(plan['tenants'])} programs on {plan['gpus_needed']} GPUs: {plan['events']} events, "
          f"{rate / 1e6:.2f} million a second of one processor, {seconds:.1f} s in all")
    return 1 if rate < LEAST_EVENTS or (options.hours == 24 and seconds > MOST_SECONDS) else 0


sys.exit(main())
