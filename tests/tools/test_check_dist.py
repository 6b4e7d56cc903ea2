"""tools/check_dist.py and tools/older_glibc.py, on small programs and libraries that are linked here."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_dist  # noqa: E402
import elf_file  # noqa: E402
import older_glibc  # noqa: E402

# Asks for __libc_start_main, stat and dlsym of C libraries since 2.33.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
__attribute__((constructor)) static void first(int argc, char** argv) { printf("%d %s, ", argc, argv[1]); }
__attribute__((destructor)) static void last(void) { puts("last"); }
int main(int argc, char** argv) {
  struct stat found;
  if (stat("/", &found) != 0 || !S_ISDIR(found.st_mode) || !dlsym(RTLD_DEFAULT, "printf")) return 3;
  printf("main %d, ", argc);
  return 0;
}
"""
OURS = "src/glibc/functions.cc", "src/glibc/start.cc"


class Dist(unittest.TestCase):
    """A folder of its own, in which `bin/program` and libraries of `lib/tessera/deps` are made."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.deps = self.root / "lib/tessera/deps"
        for path in (self.root / "bin", self.deps):
            path.mkdir(parents=True)
        self.program = self.root / "bin/program"

    def link(self, out, source, *options):
        subprocess.run(["cc", "-x", "c", "-", "-x", "none", "-o", out, "-Wl,-rpath,$ORIGIN/../lib/tessera/deps:$ORIGIN",
                        f"-L{self.deps}", *options], input=source, text=True, check=True)
        return out

    def library(self, name, source, *options):
        return self.link(self.deps / f"lib{name}.so", source, "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so", *options)

    def add_ours(self):
        target = self.deps / older_glibc.OURS
        subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-shared", "-nostdlib", "-lc",
                        f"-Wl,-soname,{target.name},--version-script={ROOT / 'src/glibc/exports.map'}",
                        *(ROOT / file for file in OURS), "-lc", "-o", target], check=True)

    def faults(self):
        return check_dist.Folder(self.root).faults()

    def fault(self):
        faults = self.faults()
        self.assertEqual(len(faults), 1, faults)
        return faults[0]


class OlderGlibc(Dist):
    def test_what_is_too_new_is_told_and_mended(self):
        self.link(self.program, PROGRAM)
        said = "\n".join(self.faults())
        self.assertRegex(said, r"bin/program: needs GLIBC_2\.34 of libc\.so\.6, above 2\.31: .*\bdlsym")
        self.assertRegex(said, r"bin/program: needs GLIBC_2\.33 of libc\.so\.6, above 2\.31: stat\b")
        self.add_ours()
        older_glibc.mend(self.program)
        self.assertEqual(self.faults(), [])
        file = elf_file.ElfFile(self.program)
        self.assertLessEqual(max(older_glibc.number(version.name) for version in file.versions), (2, 31))
        self.assertTrue({"libdl.so.2", older_glibc.OURS} <= set(file.needed))
        # Here with a newer C library: constructors, main and destructors run once, in their order.
        ran = subprocess.run([self.program, "word"], capture_output=True, text=True, env={"LD_BIND_NOW": "1"})
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "2 word, main 2, last\n", ""))

    def test_what_needs_nothing_new_stays_as_it_is(self):
        library = self.library("plain", "int plain(void) { return 1; }")
        before = library.read_bytes()
        older_glibc.mend(library)
        self.assertEqual(library.read_bytes(), before)

    def test_a_function_that_it_does_not_know_is_left_and_told(self):
        library = self.library("newer", "void mallinfo2(void); void ask(void) { mallinfo2(); }")
        before = library.read_bytes()
        older_glibc.mend(library)
        self.assertEqual(library.read_bytes(), before)
        self.assertIn("needs GLIBC_2.33 of libc.so.6, above 2.31: mallinfo2", self.fault())

    def test_its_list_is_what_the_library_has(self):
        self.add_ours()
        exported = {symbol.name for symbol in elf_file.ElfFile(self.deps / older_glibc.OURS).defined} - {"TESSERA_GLIBC"}
        self.assertEqual(exported, set(older_glibc.NEW.split()))


class CheckDist(Dist):
    def test_a_library_that_is_not_there(self):
        self.library("part", "int part(void) { return 1; }")
        user = self.library("user", "int part(void); int use(void) { return part(); }", "-lpart")
        self.assertEqual(self.faults(), [])
        os.rename(self.deps / "libpart.so", self.root / "libpart.so")
        said = self.faults()
        self.assertIn("needs libpart.so, which its RUNPATH", said[0])
        self.assertIn("needs part, which no library of the folder has", said[1])
        self.assertTrue(all(line.startswith(str(user.relative_to(self.root))) for line in said))

    def test_a_library_without_the_symbol(self):
        self.library("part", "int part(void) { return 1; }")
        self.library("user", "int part(void); int use(void) { return part(); }", "-lpart")
        self.library("part", "int other(void) { return 1; }")
        self.assertIn("needs part, which no library of the folder has", self.fault())

    def test_a_moved_function_without_its_library(self):
        user = self.library("user", "void dlopen(void); void use(void) { dlopen(); }", "-nostdlib")
        self.assertEqual(self.fault(), f"{user.relative_to(self.root)}: needs dlopen, but not libdl.so.2, where glibc 2.31 has it")

    def test_a_library_without_the_version(self):
        script = self.root / "versions.map"
        script.write_text("ONE { global: part; }; TWO { global: more; } ONE;")
        self.library("part", "int part(void) { return 1; } int more(void) { return 2; }", f"-Wl,--version-script={script}")
        self.library("user", "int more(void); int use(void) { return more(); }", "-lpart")
        self.assertEqual(self.faults(), [])
        script.write_text("ONE { global: part; more; };")
        self.library("part", "int part(void) { return 1; } int more(void) { return 2; }", f"-Wl,--version-script={script}")
        said = self.faults()
        self.assertIn("needs TWO of libpart.so, which has no such version: more", said[0])
        self.assertIn("needs more of TWO, which libpart.so does not have", said[1])

    def test_what_programs_load_has_a_lower_limit(self):
        source = "int gettid(void); int id(void) { return gettid(); }"
        library = self.library("late", source)
        self.assertEqual(self.faults(), [])
        shutil.move(library, self.root / "lib/tessera/libcuda.so.1")
        self.assertIn("lib/tessera/libcuda.so.1: needs GLIBC_2.30 of libc.so.6, above 2.28: gettid", self.fault())

    def test_ours_comes_before_the_c_library(self):
        self.add_ours()
        self.link(self.program, "int main(void) { return 0; }", "-Wl,--no-as-needed", "-lc", f"-l:{older_glibc.OURS}")
        self.assertTrue(any("behind libc.so.6: newer C libraries would be asked first" in line for line in self.faults()))

    def test_a_library_of_the_system_only(self):
        self.link(self.program, "int main(void) { return 0; }", "-Wl,--no-as-needed", "-l:libstdc++.so.6", "-Wl,--as-needed")
        self.assertTrue(any("needs libstdc++.so.6, which its RUNPATH" in line for line in self.faults()))

    def test_an_empty_folder_is_no_success(self):
        self.assertIn("no program or library", check_dist.main(self.root))

    def test_another_kind_of_file(self):
        (self.root / "bin/text").write_text("#!/bin/sh\n")
        (self.root / "bin/old").write_bytes(b"\x7fELF\x01\x01" + bytes(60))
        self.assertIn("no 64-bit little-endian ELF file", check_dist.main(self.root))


if __name__ == "__main__":
    unittest.main()
