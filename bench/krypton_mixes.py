#!/usr/bin/env python3
"""The ten cases of KRYPTON (USENIX ATC 2025), as mixes for `tessera plan`.

  krypton_mixes.py PROFILES --out FOLDER [--mixed small|large]

A case is each of four models at each of five targets, parts of the speed that it has alone: R1 = 2/3, 1/2, 1/3, 1/6, 1/12;
R2 = 1/2, 1/4, 1/6, 1/8, 1/10. A to D: inference with the small or the large batch, R1 or R2; E to H: training likewise; I
and J: both at once, R1 or R2 (the paper does not say with which batch; --mixed).

PROFILES says how fast the models are on one type of GPU. Either TOML, as `tests/hw/run.py --only plan.profiles` writes it:
`[[profile]]` with model, mode ("infer" or "train"), batch, rate_alone (bursts a second, alone), memory ("964M"), and, if
they are known, speed ([[part of the SMs, part of the speed], ...]), bandwidth (part of the memory's) and beside. Or a CSV with
model, mode, batch, a column that begins with solo_rps, and memory_mib: then speed is proportional to SMs.

A tenant's name is MODEL-MODE-BATCH-PERCENT. All are of one group, so they may share spaces.
"""
import argparse
import csv
import fractions
import math
import pathlib
import sys
import tomllib

TARGETS = {"R1": ["2/3", "1/2", "1/3", "1/6", "1/12"], "R2": ["1/2", "1/4", "1/6", "1/8", "1/10"]}
MODES = {"infer": "inf", "train": "train"}
BATCHES = {"small": 0, "large": -1}  # of a model's, in order


def read_profiles(path):
    """Profiles by (model, mode), those of smaller batches first."""
    if path.suffix == ".csv":
        rows = list(csv.DictReader(path.open(newline="")))
        solo = next((name for name in (rows[0] if rows else {}) if name.startswith("solo_rps")), None)
        if solo is None:
            raise ValueError(f"{path} has no column solo_rps")
        profiles = [{"model": row["model"], "mode": row["mode"], "batch": int(row["batch"]), "rate_alone": float(row[solo]),
                     "memory": row["memory_mib"] + "M"} for row in rows]
    else:
        profiles = tomllib.loads(path.read_text()).get("profile", [])
    by_workload = {}
    for number, profile in enumerate(profiles, 1):
        missing = {"model", "mode", "batch", "rate_alone", "memory"} - set(profile)
        if missing:
            raise ValueError(f"{path}: profile {number} has no {', '.join(sorted(missing))}")
        by_workload.setdefault((profile["model"], profile["mode"]), []).append(profile)
    models = {model for model, _ in by_workload}
    lacking = [f"{model} {mode}" for model in sorted(models) for mode in MODES if len(by_workload.get((model, mode), ())) < 2]
    if lacking or not models:
        raise ValueError(f"{path}: two batches are needed of each model, of inference and training: {', '.join(lacking) or 'none'}")
    return {workload: sorted(of, key=lambda each: each["batch"]) for workload, of in by_workload.items()}


def cases(mixed):
    """(letter, modes, batch, targets) of the ten."""
    alone = [((mode,), batch, targets) for mode in MODES for batch in BATCHES for targets in TARGETS]
    both = [(tuple(MODES), mixed, targets) for targets in TARGETS]
    return [(letter, *case) for letter, case in zip("ABCDEFGHIJ", alone + both)]


def name_of(case):
    letter, modes, batch, targets = case
    return f"{letter}-{'-'.join(MODES[mode] for mode in modes)}-{batch}-{targets}"


def tenant(profile, target):
    percent = f"{float(100 * fractions.Fraction(target)):.2f}"
    lines = ["[[tenant]]", f'name = "{profile["model"]}-{profile["mode"]}-{profile["batch"]}-{percent}"', 'group = "krypton"',
             f'memory = "{profile["memory"]}"', f'rate_alone = {profile["rate_alone"]}', f'goal = "speed={percent}%"']
    if "speed" in profile:
        lines.append(f"speed = {profile['speed']}")
    lines += [f"{key} = {profile[key]}" for key in ("bandwidth", "beside") if key in profile]
    return "\n".join(lines) + "\n"


def write_case(case, profiles, folder):
    """(path, tenants, GPUs that sharing by time alone needs)."""
    _, modes, batch, targets = case
    chosen = [of[BATCHES[batch]] for (_, mode), of in sorted(profiles.items()) if mode in modes]
    text = f'title = "KRYPTON {name_of(case)}"\n'
    count, total = 0, fractions.Fraction(0)
    for profile in chosen:
        for target in TARGETS[targets]:
            text += "\n" + tenant(profile, target)
            count += 1
            total += fractions.Fraction(target)
    path = folder / f"{name_of(case)}.toml"
    path.write_text(text)
    return path, count, math.ceil(total)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--mixed", choices=BATCHES, default="small", help="batch of the cases I and J (default: small)")
    arguments = parser.parse_args(words)
    try:
        profiles = read_profiles(arguments.profiles)
    except (OSError, ValueError, KeyError) as error:
        print(f"krypton_mixes.py: {error}", file=sys.stderr)
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    sum_of_gpus = 0
    for case in cases(arguments.mixed):
        path, count, gpus = write_case(case, profiles, arguments.out)
        sum_of_gpus += gpus
        print(f"{path}: {count} tenants; by time alone {gpus} GPUs")
    print(f"by time alone {sum_of_gpus} GPUs in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
