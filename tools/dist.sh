#!/usr/bin/env bash
# Lays everything into one relocatable folder, dist/: bin, lib/tessera, share, and in lib/tessera/deps the third-party
# libraries that the binaries need, except the C library's own. Runs on any x86-64 Linux with glibc 2.36 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist
cmake --install build/release --prefix "$PWD/dist" --strip >/dev/null
# For tests/hw/run.py, on machines where nothing is built.
install -s build/release/bin/swap_churn dist/lib/tessera/tessera-swap-churn
deps=dist/lib/tessera/deps
mkdir -p "$deps"
system='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so'
for binary in dist/bin/* dist/lib/tessera/tessera-{tenant,channel-test,swap-churn} dist/lib/tessera/soft/{libcuda.so.1,tessera-soft-mps-control}; do
  ldd "$binary" | awk '$3 ~ /^\// {print $1, $3}' | grep -Ev "^($system)" | while read -r name path; do
    [[ -e $deps/$name ]] || cp -L "$path" "$deps/$name"
  done
done
for binary in dist/bin/*; do patchelf --set-rpath '$ORIGIN/../lib/tessera/deps' "$binary"; done
for program in dist/lib/tessera/tessera-{tenant,channel-test,swap-churn}; do patchelf --set-rpath '$ORIGIN/deps' "$program"; done
patchelf --set-rpath '$ORIGIN/../deps' dist/lib/tessera/soft/{libcuda.so.1,tessera-soft-mps-control}
for library in "$deps"/*; do patchelf --set-rpath '$ORIGIN' "$library"; done
du -sh dist | awk '{print "dist: " $1}'
