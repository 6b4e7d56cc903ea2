#!/usr/bin/env bash
# install_packages.sh GROUP...: installs the packages of these groups of tools/packages.txt that are missing, as root or
# through sudo, and says which.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -gt 0 ]] || { echo "usage: install_packages.sh GROUP... ($(grep -o '^\[.*\]' tools/packages.txt | tr '\n' ' '))" >&2; exit 2; }
for group; do
  grep -qxF "[$group]" tools/packages.txt || { echo "install_packages.sh: tools/packages.txt has no group '$group'" >&2; exit 2; }
done
missing=()
group=
while read -r line; do
  case $line in
    '' | \#*) continue ;;
    \[*\]) group=${line//[\[\]]/}; continue ;;
  esac
  [[ " $* " == *" $group "* ]] || continue
  dpkg-query -W -f='${Status}' "$line" 2>/dev/null | grep -q 'ok installed' || missing+=("$line")
done <tools/packages.txt
[[ ${#missing[@]} -eq 0 ]] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "tessera: these packages are missing, and there is no apt-get to install them: ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "tessera: install these packages as root first: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
