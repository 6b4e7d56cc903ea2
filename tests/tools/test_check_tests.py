"""tools/check_tests.py: which scratch files of tests it refuses."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_tests  # noqa: E402


class ScratchFiles(unittest.TestCase):
    def faults(self, path, text):
        return list(check_tests.faults([(pathlib.PurePath(path), text)]))

    def test_made_by_hand_are_refused(self):
        for call in ("testing::TempDir()", "::testing::TempDir ()", "mkdtemp(path)", "mkstemp(path.data())",
                     "std::filesystem::temp_directory_path()"):
            found = self.faults("server/gpu/files_test.cc", f"int main() {{\n  auto folder = {call};\n}}\n")
            self.assertEqual(len(found), 1, call)
            self.assertIn("src/server/gpu/files_test.cc:2: ", found[0])
            self.assertEqual(len(self.faults("server/testing/fake_mps.h", call)), 1, call)

    def test_a_folder_of_its_own_is_right(self):
        self.assertEqual(self.faults("server/gpu/files_test.cc", "const TemporaryFolder dir_;\n"), [])
        self.assertEqual(self.faults("base/testing/temporary_folder.h", "mkdtemp(testing::TempDir().data())"), [])

    def test_the_product_may_make_folders(self):
        self.assertEqual(self.faults("cli/demo/demo_stage.cc", "mkdtemp(folder.data())"), [])


if __name__ == "__main__":
    unittest.main()
