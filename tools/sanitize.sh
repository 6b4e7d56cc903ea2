#!/usr/bin/env bash
# sanitize.sh asan|tsan [build]: builds the unit tests of tools/PRESET.targets with that sanitizer, runs them and prints a line
# for each. Shims and other preloaded libraries are left out: a sanitizer's runtime must come first in a process, and
# there they do. The daemon is tested through its faces. With "build" it only builds.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: sanitize.sh asan|tsan [build]}
export ASAN_OPTIONS=detect_leaks=1 TSAN_OPTIONS=halt_on_error=1
mapfile -t targets <"tools/$preset.targets"  # those that run longest are first
more=()
[ "$preset" = asan ] && more=(tesserad)
cmake --preset "$preset" -DTESSERA_TESTS=ON -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null
cmake --build --preset "$preset" -j "$(nproc)" --target "${targets[@]}" "${more[@]}"
built=$SECONDS
[ "${2:-}" != build ] || exit 0

# One test program; its output only if it fails.
run_test() {
  local output status=0
  output=$("build/$1/bin/$2" --gtest_brief=1 2>&1) || status=$?
  [ $status = 0 ] || echo "$output"
  echo "$1: $2: $(sed -n 's/^\[=*\] //p' <<<"$output" | tail -1)$([ $status = 0 ] || echo " FAILED, status $status")"
  return $status
}
export -f run_test
# It waits about as long as it works, so it runs beside the others.
fuzz=
if [ "$preset" = asan ]; then
  echo "asan: test_faces_fuzz.py"
  TESSERA_BUILD="$PWD/build/asan" python3 tests/e2e/test_faces_fuzz.py --seconds 12 &
  fuzz=$!
fi
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c "run_test $preset {}"
[ -z "$fuzz" ] || wait "$fuzz"
echo "$preset: ${#targets[@]} test programs passed; built in $built s, ran in $((SECONDS - built)) s"
