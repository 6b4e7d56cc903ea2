#!/usr/bin/env python3
"""Sizes of the classes of src/, over all files that a class is written in, and of folders. Tests are left out of classes.

  tools/class_sizes.py [--most N]    the largest classes, those with the most public methods, the fullest folders
  tools/class_sizes.py --check       fails where one is beyond its limit

A class's size is the lines of its body and of its members' definitions, each with the empty line behind it. It reads the text, not the language: a
definition is a line that begins with "TYPE CLASS::MEMBER(" and has a body.
"""
import argparse
import collections
import dataclasses
import pathlib
import re
import sys

MOST_LINES = 400
MOST_PUBLIC_METHODS = 20
MOST_FILES = 30

# Classes that are a table by nature, with many public methods that do alike things, by part and name, and why.
TABLES = {}

CODE = {".h", ".cc", ".c", ".cpp", ".cu", ".cuh", ".S", ".py", ".sh"}
CLASS = re.compile(r"^[ \t]*(class|struct)\s+(?:TESSERA_\w+(?:\([^)]*\))?\s+)?(\w+)(?:\s+final)?(?:\s*:[^{;]*)?\s*\{", re.MULTILINE)
DEFINITION = re.compile(r"^(?:[\w:<>,*&\s\[\]]+?[\s*&])?((?:\w+::)+)(?:~?\w+|operator[^\s(]+)\s*\([^;{]*?\)[^;{]*\{", re.MULTILINE)
METHOD = re.compile(r"^\s*(?:template.*>\s*)?(?:\[\[\w+\]\]\s*)?(?:[\w:<>,*&\s~]+?)\b(~?\w+|operator\S+)\s*\(")
NO_METHOD = re.compile(r"\s*(return|if|for|while|using|static_assert|else|friend)\b")


@dataclasses.dataclass
class Class:
    part: str
    name: str
    file: str
    lines: int = 0
    public_methods: int = 0


def is_test(path):
    return "test" in path.stem or "testing" in path.parts


def code_of(text):
    """Without comments and without what strings say; lines stay."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"'(\\.|[^'\\\n])'", "' '", text)


def end_of_block(text, start):
    """Behind the brace that closes the block whose first brace ends before `start`."""
    depth = 1
    while start < len(text) and depth:
        depth += (text[start] == "{") - (text[start] == "}")
        start += 1
    return start


def public_methods(name, kind, body):
    """Of a class whose body, between the braces, is `body`: declarations, without constructors and the destructor."""
    public, depth, parentheses, count = kind == "struct", 0, 0, 0
    for line in body.split("\n"):
        if depth == 0 and (access := re.match(r"\s*(public|private|protected):", line)):
            public = access[1] == "public"
            continue
        if public and depth == 0 and parentheses == 0 and not NO_METHOD.match(line) and "= delete" not in line:
            method = METHOD.match(line)
            count += bool(method) and method[1] not in (name, "~" + name)
        depth += line.count("{") - line.count("}")
        parentheses += line.count("(") - line.count(")")
    return count


def read_classes(files):
    """The classes of `files`: (path relative to src/, text). One of a header belongs to its part, others to their file."""
    classes = {}
    texts = {path: code_of(text) for path, text in files if not is_test(path)}
    for path, text in texts.items():
        for found in CLASS.finditer(text):
            if re.search(r"enum\s+$", text[:found.start(1)]):
                continue
            end = end_of_block(text, found.end())
            place = path.parts[0] if path.suffix == ".h" else str(path)
            this = classes.setdefault((place, found[2]), Class(path.parts[0], found[2], str(path)))
            this.lines += text[found.start(1):end].count("\n") + 1
            this.public_methods += public_methods(found[2], found[1], text[found.end():end - 1])
    for path, text in texts.items():
        for found in DEFINITION.finditer(text):
            name = found[1].split("::")[-2]
            this = classes.get((str(path), name)) or classes.get((path.parts[0], name))
            if this:
                this.lines += text[found.start():end_of_block(text, found.end())].strip().count("\n") + 2
    return list(classes.values())


def folders(files):
    """How many files of code are directly in each folder."""
    return collections.Counter(str(path.parent) for path in files if path.suffix in CODE)


def faults(classes, files_in):
    for this in classes:
        if (this.part, this.name) in TABLES:
            continue
        if this.lines > MOST_LINES:
            yield f"src/{this.file}: {this.name} has {this.lines} lines, at most {MOST_LINES} are allowed"
        if this.public_methods > MOST_PUBLIC_METHODS:
            yield f"src/{this.file}: {this.name} has {this.public_methods} public methods, at most {MOST_PUBLIC_METHODS} are allowed"
    for folder, count in files_in.items():
        if count > MOST_FILES:
            yield f"{folder}: {count} files of code, at most {MOST_FILES} are allowed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=15, help="how many of each to print")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    source = root / "src"
    classes = read_classes([(path.relative_to(source), path.read_text()) for path in sorted(source.rglob("*"))
                            if path.suffix in (".h", ".cc")])
    files_in = folders([path.relative_to(root) for folder in ("src", "tests", "tools", "bench") for path in (root / folder).rglob("*")])
    if arguments.check:
        wrong = list(faults(classes, files_in))
        print("\n".join(wrong) or f"class sizes: {len(classes)} classes within their limits")
        return 1 if wrong else 0
    print(f"{len(classes)} classes. Lines, over all files:")
    for this in sorted(classes, key=lambda each: -each.lines)[:arguments.most]:
        print(f"{this.lines:6} {this.part}::{this.name}  src/{this.file}")
    print(f"Public methods; {sum(each.public_methods > 15 for each in classes)} classes have more than 15:")
    for this in sorted(classes, key=lambda each: -each.public_methods)[:arguments.most]:
        print(f"{this.public_methods:6} {this.part}::{this.name}  src/{this.file}")
    print("Files of code directly in a folder:")
    for folder, count in files_in.most_common(arguments.most):
        print(f"{count:6} {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
