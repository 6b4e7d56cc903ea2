#!/usr/bin/env bash
# Formatting of every source file, then clang-tidy over the sources of src/ (tests left out: they are read, not shipped).
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-19 --dry-run --Werror
python3 tools/check_includes.py
# Its own configuration by clang, whose flags clang-tidy understands; what is generated is built, nothing else.
cmake --preset debug -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19 >/dev/null
ninja -C build/debug -t targets all | sed -n 's/^\(src\/.*\(symbol_index\.h\|trampolines\.S\)\): CUSTOM_COMMAND$/\1/p' |
  xargs -r ninja -C build/debug >/dev/null
git ls-files 'src/*.cc' | grep -v '_test\.cc$' | xargs -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p build/debug 2>/dev/null
echo "lint: clean"
