"""Programs as containers with a CDI device run them: with its environment, and the machine's files in place of its mounts."""
import os
import subprocess

from harness import BIN, TENANT, Shell, Tenant


def variables(specification):
    """What the only device of a specification adds to the environment."""
    (device,) = specification["devices"]
    edits = [specification["containerEdits"], device["containerEdits"]]
    found = dict(each.split("=", 1) for edit in edits for each in edit["env"])
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits[0]["mounts"]}
    with open(mounts["/etc/ld.so.preload"]) as shims:
        found["LD_PRELOAD"] = shims.read().strip().replace("\n", ":")
    for inside, outside in mounts.items():
        found = {key: value.replace(inside, outside) for key, value in found.items()}
    return found


def run(test, specification, *command, environment=None, **options):
    env = {**os.environ, **test.env, **variables(specification), **(environment or {})}
    return test.spawn(*command, env=env, **options)


def program(test, specification, *flags, **environment):
    return Tenant(run(test, specification, TENANT, *flags, environment=environment))


def shell_with_context(test, specification):
    shell = Shell(run(test, specification, BIN / "driver_shell", stdin=subprocess.PIPE))
    shell.ok("init")
    shell.ok("context")
    return shell
