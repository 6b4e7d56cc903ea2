#!/usr/bin/env bash
# Formatting of every source file, the layers, then clang-tidy over what runs beside or inside other people's programs.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-19 --dry-run --Werror
python3 tools/check_includes.py
python3 tools/check_tests.py
python3 tools/class_sizes.py --check
# Its own configuration, without what clang-tidy cannot read; of the build, only the headers that are generated. Several
# files of a part at once: most of the time goes into the headers that they share.
cmake --preset debug -B build/lint -DTESSERA_TESTS=OFF -DTESSERA_UNITY=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
ninja -C build/lint src/shim/tessera_shim/symbol_index.h src/shim/tessera_nvml/symbol_index.h \
  src/guard/watch/watch.skel.h src/kubernetes/proto_cpp/kubernetes/proto/{device_plugin,dra,dra_health,plugin_registration,pod_resources}.grpc.pb.h >/dev/null
tools/lint_sources.py build/lint | xargs -P "$(nproc)" -n 1 clang-tidy-19 --quiet -p build/lint 2>/dev/null
echo "lint: clean"
