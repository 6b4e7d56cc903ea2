#!/usr/bin/env python3
"""flat_seccomp.py FILE: the seccomp profile of podman or Docker as a container with their usual rights gets it.

Rules of theirs depend on a container's rights, on the processor and on the kernel ("includes", "excludes"). The kubelet
passes a profile to container runtimes of which some read what the OCI runtime specification has, and nothing else.
"""
import json
import pathlib
import sys

# What containerd gives a container that asks for nothing.
CAPABILITIES = {f"CAP_{name}" for name in (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")}
PROCESSOR, ARCHITECTURE = "amd64", "SCMP_ARCH_X86_64"
KERNEL = (5, 4)  # the oldest that the node may have
RULE = ("names", "action", "errnoRet", "args")
ARGUMENT = ("index", "value", "valueTwo", "op")


def is_for(rule):
    wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
    kernel = tuple(map(int, wanted.get("minKernel", "0.0").split(".")[:2]))
    return (set(wanted.get("caps") or []) <= CAPABILITIES and not set(unwanted.get("caps") or []) & CAPABILITIES
            and PROCESSOR in (wanted.get("arches") or [PROCESSOR]) and PROCESSOR not in (unwanted.get("arches") or [])
            and kernel <= KERNEL)


def flat(profile):
    (archs,) = [each for each in profile["archMap"] if each["architecture"] == ARCHITECTURE]
    rules, decided = [], set()
    for rule in filter(is_for, profile["syscalls"]):
        # Of two rules for all of a system call the first counts: podman's own profile has such.
        kept = {key: rule[key] for key in RULE if rule.get(key)}
        kept["names"] = [name for name in rule["names"] if name not in decided]
        if "args" in kept:
            kept["args"] = [{key: each[key] for key in ARGUMENT if key in each} for each in kept["args"]]
        else:
            decided |= set(kept["names"])
        if kept["names"]:
            rules.append(kept)
    return {"defaultAction": profile["defaultAction"],
            **({"defaultErrnoRet": profile["defaultErrnoRet"]} if "defaultErrnoRet" in profile else {}),
            "architectures": [ARCHITECTURE, *archs["subArchitectures"]], "syscalls": rules}


if __name__ == "__main__":
    print(json.dumps(flat(json.loads(pathlib.Path(sys.argv[1]).read_text())), indent=1))
