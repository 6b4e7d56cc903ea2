#!/usr/bin/env bash
# arm64_run.sh COMMAND...: runs a command that can start the programs of build/arm64 like any others: by qemu-user, with
# the libraries of build/arm64/sysroot where arm64 programs look for them. All this is so in namespaces of the command's
# own; it needs Linux 6.7 or newer, or Debian's qemu-user-static, which tells the kernel of qemu for the whole system.
set -euo pipefail
[[ $# -gt 0 ]] || { echo "usage: arm64_run.sh COMMAND..." >&2; exit 2; }
[[ -z ${TESSERA_RUNS_ARM64:-} ]] || exec "$@"
sysroot=$(dirname "$(realpath "$0")")/../build/arm64/sysroot

enter=(unshare --user --map-root-user --mount)
if [[ $EUID -eq 0 ]]; then
  # With all users, as some tests act as several: somebody outside has to say so.
  unshare --user sleep 10 &
  maps=/proc/$!
  until [[ $(readlink "$maps/ns/user") != "$(readlink /proc/self/ns/user)" ]]; do sleep 0.01; done
  echo 0 0 65536 >"$maps/uid_map"
  echo 0 0 65536 >"$maps/gid_map"
  enter=(nsenter --user="$maps/ns/user" unshare --mount)
fi
# What the files of arm64 programs begin with, and which bits of that count (Linux's documents, binfmt-misc). P: the
# program sees the name that it was called by.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
export TESSERA_RUNS_ARM64=1
exec "${enter[@]}" bash -c '
  mount -t overlay none /usr/lib -o "lowerdir=$0/usr/lib:/usr/lib" || exit 1
  if ! /lib/ld-linux-aarch64.so.1 --version >/dev/null 2>&1; then
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf %s "$1" >/proc/sys/fs/binfmt_misc/register || {
      echo "arm64_run.sh: this kernel has no binfmt_misc for namespaces: install qemu-user-static, as root" >&2
      exit 1
    }
  fi
  exec "${@:2}"' "$sysroot" ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64):P" "$@"
