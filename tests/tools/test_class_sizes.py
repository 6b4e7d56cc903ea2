"""tools/class_sizes.py: how it counts."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import class_sizes  # noqa: E402

HEADER = """
// class Comment {
class Heap : public Base {
 public:
  Heap();
  ~Heap();
  Heap(const Heap&) = delete;
  Result<void> Allocate(int bytes,
                        int alignment = Default(1));
  int used() const { return used_; }
  template <typename Each> void ForEach(Each&& each) const;
  bool operator==(const Heap& other) const;
  using Callback = std::function<void(int)>;

 private:
  void Grow();
  int used_ = 0;
};

enum class Kind { kOne };
struct Options { std::string text() const; };
"""

SOURCE = """
namespace {
class Local { void Run(); };
void Local::Run() {
}
}

Heap::Heap() = default;

Result<void> Heap::Allocate(int bytes,
                            int alignment) {
  if (bytes == 0) {
    return Fail("{");  // }
  }
}

void Heap::Grow() {}
int Other() { return 1; }
"""


class Classes(unittest.TestCase):
    def setUp(self):
        files = [(pathlib.Path(path), text) for path, text in
                 (("pager/heap.h", HEADER), ("pager/heap.cc", SOURCE), ("pager/heap_test.cc", "class Test {\n};"),
                  ("mover/other.cc", "class Heap { void A(); };\nvoid Heap::A() {\n}\n"))]
        self.classes = {(each.file, each.name): each for each in class_sizes.read_classes(files)}

    def test_classes_are_found(self):
        self.assertEqual(set(self.classes), {("pager/heap.h", "Heap"), ("pager/heap.h", "Options"), ("pager/heap.cc", "Local"),
                                             ("mover/other.cc", "Heap")})

    def test_lines_are_those_of_all_files(self):
        body, allocate, grow = 16, 6, 1
        self.assertEqual(self.classes["pager/heap.h", "Heap"].lines, body + allocate + 1 + grow + 1)
        self.assertEqual(self.classes["pager/heap.cc", "Local"].lines, 1 + 2 + 1)
        self.assertEqual(self.classes["mover/other.cc", "Heap"].lines, 1 + 2 + 1)

    def test_public_methods(self):
        self.assertEqual(self.classes["pager/heap.h", "Heap"].public_methods, 4)
        self.assertEqual(self.classes["pager/heap.cc", "Local"].public_methods, 0)


class Faults(unittest.TestCase):
    def faults(self, folders=None, **sizes):
        this = class_sizes.Class("pager", "Heap", "pager/heap.h", **sizes)
        return list(class_sizes.faults([this], folders or {}))

    def test_limits(self):
        self.assertEqual(self.faults(lines=400, public_methods=20), [])
        self.assertEqual(len(self.faults(lines=401)), 1)
        self.assertEqual(len(self.faults(public_methods=21)), 1)
        self.assertEqual(self.faults({"src/a": 30}), [])
        self.assertEqual(self.faults({"src/a": 31}), ["src/a: 31 files of code, at most 30 are allowed"])

    def test_folders(self):
        paths = map(pathlib.Path, ("src/a/x.h", "src/a/x.cc", "src/a/README.md", "src/a/b/y.cc"))
        self.assertEqual(class_sizes.folders(paths), {"src/a": 2, "src/a/b": 1})


if __name__ == "__main__":
    unittest.main()
