#!/usr/bin/env bash
# Packs build/release into Debian packages, build/deb/*.deb. Between releases their version is the next one's with the
# time of the last commit, 0.1.0~git20261122.213000, which the release itself is newer than.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/release/CMakeCache.txt)
date=$(git log -1 --format=%cD 2>/dev/null || date -R)
git describe --exact-match --match "v$version" >/dev/null 2>&1 || version+="~git$(date -u -d "$date" +%Y%m%d.%H%M%S)"
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
