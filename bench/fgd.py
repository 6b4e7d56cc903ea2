#!/usr/bin/env python3
"""FGD's experiment, beside its published figures (docs/plan-cluster.md).

  bench/fgd.py --data DIR [--tessera build/release/bin/tessera] [--seeds 10] [--json FILE]

DIR has node_list_gpu_node.csv and pod_list_*.csv of FGD's simulator, and fgd_published_results.csv, in which each row has
pod_list,policy,seed,arrived_pct,allocated_pct,frag_pct_of_gpus. Lists without published figures are run as well.

Fails if the mean of a published policy differs by more than 0.3 points at 130 %, if Tessera's own has less than FGD in
the same run, if more than 2 % of the pods were moved, or if a list takes more than 60 s.
"""
import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys

PUBLISHED = {"random": "01-Random", "dotprod": "02-DotProd", "clustering": "03-GpuClustering", "packing": "04-GpuPacking",
             "bestfit": "05-BestFit", "fgd": "06-FGD"}
OURS = {"tessera": 0, "tessera + moves": 2}  # moves in percent of the pods
MOST_DIFFERENCE, MOST_SECONDS = 0.3, 60


def published(path):
    """Means of the seeds, by (list, policy), then by arrived percent: [allocated, fragmented]."""
    sums = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0, 0]))
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            of = sums[row["pod_list"], row["policy"]][int(row["arrived_pct"])]
            of[0] += float(row["allocated_pct"])
            of[1] += float(row["frag_pct_of_gpus"])
            of[2] += 1
    return {key: {at: (a / n, f / n) for at, (a, f, n) in by.items()} for key, by in sums.items()}


def plan(arguments, pods, policy, moves):
    answer = subprocess.run([arguments.tessera, "plan", pods, "--nodes", arguments.data / "node_list_gpu_node.csv", "--policy", policy,
                             "--seeds", str(arguments.seeds), "--moves", str(moves), "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout)


def at(report, percent):
    """Allocated and fragmented."""
    point = next(point for point in report["points"] if point["arrived_pct"] == percent)
    return point["allocated_pct"], point["fragmented_pct"]


def compare(name, known, reports):
    """Prints a list's table, and returns what is wrong."""
    wrong = []
    print(f"\n{name}: {reports['fgd']['gpus']} GPUs; {reports['fgd']['bound_pct']:.2f} % is the most before a pod is refused")
    print(f"{'policy':<16} {'published':>9} {'here':>7} {'difference':>10} {'worst at any point':>18} {'of fragments':>12}"
          f" {'pods placed':>11} {'moved':>6} {'seconds':>7}")
    for policy, report in reports.items():
        runs = report["runs"]
        here = at(report, 130)[0]
        line = f"{policy:<16} "
        points = known.get((name, PUBLISHED.get(policy)), {})
        if points:
            differences = [[a - b for a, b in zip(at(report, percent), points[percent])] for percent in points]
            difference = here - points[130][0]
            worst, fragments = (max((d[i] for d in differences), key=abs) for i in (0, 1))
            line += f"{points[130][0]:9.2f} {here:7.2f} {difference:+10.2f} {worst:+18.2f} {fragments:+12.2f}"
            if abs(difference) > MOST_DIFFERENCE:
                wrong.append(f"{name}, {policy}: differs by {difference:+.2f} points from the published mean")
        else:
            line += f"{'':9} {here:7.2f} {'':10} {'':18} {'':12}"
        print(line + f" {sum(r['placed'] for r in runs) / len(runs):11.0f} {sum(r['moved'] for r in runs) / len(runs):6.1f}"
              f" {report['seconds']:7.1f}")
        if any(r["moved"] > 0.02 * r["placed"] for r in runs):
            wrong.append(f"{name}, {policy}: more than 2 % of the pods were moved")
        if policy in OURS and here < at(reports["fgd"], 130)[0]:
            wrong.append(f"{name}, {policy}: less than FGD")
    seconds = sum(report["seconds"] for report in reports.values())
    print(f"{seconds:.1f} s in all")
    if seconds > MOST_SECONDS:
        wrong.append(f"{name}: took {seconds:.0f} s")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--tessera", type=pathlib.Path, default=pathlib.Path("build/release/bin/tessera"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    known = published(arguments.data / "fgd_published_results.csv")
    everything, wrong = {}, []
    for pods in sorted(arguments.data.glob("pod_list_*.csv")):
        reports = {policy: plan(arguments, pods, policy, 0) for policy in PUBLISHED}
        reports |= {name: plan(arguments, pods, "tessera", moves) for name, moves in OURS.items()}
        wrong += compare(pods.stem, known, reports)
        everything[pods.stem] = reports
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=1))
    if not everything:
        wrong.append(f"{arguments.data} has no pod_list_*.csv")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
