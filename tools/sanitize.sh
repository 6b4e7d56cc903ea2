#!/usr/bin/env bash
# sanitize.sh asan|tsan: builds the unit tests with that sanitizer and runs them. Shims and other preloaded libraries are
# left out: a sanitizer's runtime must come first in a process, and there they do. The daemon is tested by its faces.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
export ASAN_OPTIONS=detect_leaks=1 TSAN_OPTIONS=halt_on_error=1
cmake --preset "$preset" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
mapfile -t targets < <(cat "tools/$preset.targets")
cmake --build --preset "$preset" -j "$(nproc)" --target "${targets[@]}"
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} sh -c "echo '$preset: {}' && build/$preset/bin/{} --gtest_brief=1"
if [ "$preset" = asan ]; then
  echo "asan: test_faces_fuzz.py"
  cmake --build --preset asan -j "$(nproc)" --target tesserad
  TESSERA_BUILD="$PWD/build/asan" python3 tests/e2e/test_faces_fuzz.py --seconds 20
fi
