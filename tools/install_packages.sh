#!/usr/bin/env bash
# Installs the packages of tools/packages.txt that are missing, as root or through sudo, and says which.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
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
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
