"""The flat profile, from the one that podman's package has."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import flat_seccomp  # noqa: E402

PROFILE = json.loads(pathlib.Path("/usr/share/containers/seccomp.json").read_text())


def actions(profile, name):
    return {rule["action"] for rule in profile["syscalls"] if name in rule["names"] and not rule.get("args")}


class Flat(unittest.TestCase):
    def setUp(self):
        self.flat = flat_seccomp.flat(PROFILE)

    def test_it_has_only_what_the_specification_has(self):
        self.assertLessEqual(set(self.flat), {"defaultAction", "defaultErrnoRet", "architectures", "syscalls"})
        for rule in self.flat["syscalls"]:
            self.assertLessEqual(set(rule), {"names", "action", "errnoRet", "args"})
        self.assertEqual(self.flat["architectures"][0], "SCMP_ARCH_X86_64")

    def test_no_call_is_allowed_and_refused(self):
        for name in {name for rule in self.flat["syscalls"] for name in rule["names"]}:
            self.assertLessEqual(len(actions(self.flat, name)), 1, name)

    def test_rules_are_those_of_a_container_with_the_usual_rights(self):
        for name, action in (("read", "ALLOW"), ("chroot", "ALLOW"), ("arch_prctl", "ALLOW"), ("bpf", "ERRNO"),
                             ("init_module", "ERRNO"), ("settimeofday", "ERRNO")):
            self.assertEqual(actions(self.flat, name), {f"SCMP_ACT_{action}"}, name)
        self.assertEqual(actions(self.flat, "cacheflush"), set())  # of other processors


if __name__ == "__main__":
    unittest.main()
