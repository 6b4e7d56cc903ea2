#!/usr/bin/env bash
# arm64_sysroot.sh FOLDER: unpacks Debian's arm64 libraries into FOLDER, for a compiler that runs here and compiles for
# arm64. Which: the packages of tools/packages.txt, groups build and test, whose names end in -dev, and all that they
# need. They come from the system's own package sources, by an apt with a state of its own: nothing on this system is
# installed, changed or removed, and it needs no root. Does nothing where FOLDER has these packages already.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -eq 1 ]] || { echo "usage: arm64_sysroot.sh FOLDER" >&2; exit 2; }
folder=$1

# A compiler for this system brings along the libraries of C and C++.
packages=(libc6-dev libstdc++-12-dev)
group=
while read -r line; do
  case $line in
    \[*\]) group=${line//[\[\]]/} ;;
    \#*) ;;
    *-dev) if [[ $group == build || $group == test ]]; then packages+=("$line"); fi ;;
  esac
done <tools/packages.txt
[[ -f $folder/packages && $(<"$folder/packages") == "${packages[*]}" ]] && exit 0

rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d "$folder/apt.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/state/lists/partial "$work"/cache/archives/partial
: >"$work/status"
# ForceEssential: else apt adds a whole system. The hooks are those that tell this system's programs of new packages.
cat >"$work/apt.conf" <<END
Dir::State "$PWD/$work/state";
Dir::State::status "$PWD/$work/status";
Dir::Cache "$PWD/$work/cache";
APT::Architecture "arm64";
#clear APT::Architectures;
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
pkgCacheGen::ForceEssential "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
END
echo "unpacking Debian's arm64 libraries into $folder"
apt-get -qq -c "$work/apt.conf" update
apt-get -qq -c "$work/apt.conf" install --download-only -y "${packages[@]}" >/dev/null

mkdir "$folder"/{usr,usr/lib,usr/bin,usr/sbin}
for name in lib bin sbin; do ln -s "usr/$name" "$folder/$name"; done
for archive in "$work"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$archive" | tar -x --keep-directory-symlink --no-same-owner --exclude=./usr/share/doc -C "$folder"
done
# Links from the root would lead out of the folder.
find "$folder" -type l -lname '/*' | while read -r link; do
  ln -sfnr "$folder$(readlink "$link")" "$link"
done
echo "${packages[*]}" >"$folder/packages"
