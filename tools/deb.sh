#!/usr/bin/env bash
# Packs build/release into Debian packages, build/deb/*.deb.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(tools/package_version.sh)
date=$(git log -1 --format=%cD 2>/dev/null || date -R)
maintainer=$(sed -n 's/^Maintainer: //p' deploy/debian/control)
rm -rf build/deb
mkdir -p build/deb/tessera
cp -r deploy/debian build/deb/tessera/
cd build/deb/tessera
cat >debian/changelog <<END
tessera ($version) unstable; urgency=medium

  * /usr/share/doc/tessera/CHANGELOG.md says what is new.

 -- $maintainer  $date
END
# Without what make tells its children: a make of its own begins here.
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage --build=binary --no-sign >../build.log 2>&1 ||
  { cat ../build.log; exit 1; }
cd ..
rm -r tessera
ls -1 "$PWD"/*.deb
