#!/usr/bin/env bash
# dist.sh [FOLDER]: lays everything into one relocatable folder, dist/: bin, lib/tessera, share, and in lib/tessera/deps
# the third-party libraries that the binaries need, except the C library's own and libgcc_s, which every system has; their
# licenses, and those of the libraries that are compiled into the binaries, are in share/tessera/licenses. Runs on any
# x86-64 Linux with glibc 2.31 or newer: older_glibc.py makes it so, and check_dist.py checks each symbol.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:-dist}
release=build/release
rm -rf "$dist"
cmake --install $release --prefix "$(realpath -m "$dist")" --strip >/dev/null
# For tests/hw/run.py, on machines where nothing is built.
install -s $release/bin/swap_churn "$dist/lib/tessera/tessera-swap-churn"
deps=$dist/lib/tessera/deps
mkdir -p "$deps"
install -s $release/lib/glibc/libtessera-glibc.so.1 "$deps/"

programs=("$dist"/bin/*)
helpers=("$dist"/lib/tessera/tessera-*)
compiled_in=(libcli11-dev libxxhash-dev nlohmann-json3-dev)  # headers alone
soft=("$dist"/lib/tessera/soft/{libcuda.so.1,tessera-soft-mps-control})
system='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|libgcc_s\.so'
ldd "${programs[@]}" "${helpers[@]}" "${soft[@]}" | awk '$3 ~ /^\// {print $1, $3}' | grep -Ev "^($system)" | sort -u |
  while read -r name path; do
    cp -L "$path" "$deps/$name"
    path=$(realpath "$path")
    echo "$path ${path#/usr}"  # dpkg knows one of the two
  done | { xargs dpkg-query -S 2>/dev/null || true; } | cut -d: -f1 |
  cat - <(printf '%s\n' "${compiled_in[@]}") | sort -u | while read -r package; do
    install -D -m 644 "/usr/share/doc/$package/copyright" "$dist/share/tessera/licenses/$package"
  done
chmod 644 "$deps"/*

tools/older_glibc.py "${programs[@]}" "${helpers[@]}" "${soft[@]}" "$deps"/*
patchelf --set-rpath '$ORIGIN/../lib/tessera/deps' "${programs[@]}"
patchelf --set-rpath '$ORIGIN/deps' "${helpers[@]}"
patchelf --set-rpath '$ORIGIN/../deps' "${soft[@]}"
patchelf --set-rpath '$ORIGIN' "$deps"/*
tools/check_dist.py "$dist"
du -sh "$dist" | awk '{print "dist: " $1}'
