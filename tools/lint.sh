#!/usr/bin/env bash
# Formatting of every source file, the layers, then clang-tidy over what runs beside or inside other people's programs. The
# soft GPU, the CLI, the demo's program and the tests are left out, for the minutes that they would take.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-19 --dry-run --Werror
python3 tools/check_includes.py
# Its own configuration, without what clang-tidy cannot read; of the build, only the headers that are generated.
cmake --preset debug -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
ninja -C build/debug src/shim/tessera_shim/symbol_index.h src/shim/tessera_nvml/symbol_index.h \
  src/guard/watch/watch.skel.h >/dev/null
git ls-files 'src/*.cc' | grep -Ev '_test\.cc$|_fuzz\.cc$|_fuzzer\.cc$|_bench\.cc$|/testing/|^src/(soft|cli|tenant)/' | xargs -P "$(nproc)" -n 4 clang-tidy-19 --quiet -p build/debug 2>/dev/null
echo "lint: clean"
