#!/usr/bin/env python3
"""embed.py OUTPUT FILE...: writes the page's files into a C++ file, for face/page/asset.h."""
import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
LINE = 32


def literal(data):
    """Numbers, because a string literal may not be longer than 64 KiB everywhere, and may hold anything here."""
    rows = (", ".join(str(byte) for byte in data[at:at + LINE]) for at in range(0, len(data), LINE))
    return ",\n    ".join(rows)


def main():
    output, *files = map(pathlib.Path, sys.argv[1:])
    arrays, rows = [], []
    for number, file in enumerate(sorted(files)):
        data = file.read_bytes()
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        tag = hashlib.sha256(data).hexdigest()[:16]
        arrays.append(f"constexpr unsigned char kFile{number}[] = {{\n    {literal(data)}}};\n")
        rows.append(f'    {{"{path}", "{TYPES[file.suffix]}", BytesOf(kFile{number}), "\\"{tag}\\""}},\n')
    output.write_text(f"""// Made by src/face/page/embed.py.
#include "face/page/asset.h"

#include <algorithm>
#include <cstddef>

namespace tessera::face {{
namespace {{

{"".join(arrays)}
template <std::size_t kSize>
std::string_view BytesOf(const unsigned char (&bytes)[kSize]) {{
  return {{reinterpret_cast<const char*>(bytes), kSize}};
}}

}}  // namespace

const Asset* FindAsset(std::string_view path) {{
  static const Asset kAssets[] = {{
{"".join(rows)}  }};
  const auto* found = std::ranges::find(kAssets, path, &Asset::path);
  return found == std::end(kAssets) ? nullptr : found;
}}

}}  // namespace tessera::face
""")


main()
