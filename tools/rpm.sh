#!/usr/bin/env bash
# Packs the folder of tools/dist.sh into RPM packages, build/rpm/*.rpm, which run where the folder does: RHEL 9, for example.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
version=$(tools/package_version.sh)
rm -rf build/rpm
mkdir -p build/rpm/work
tools/dist.sh build/rpm/tree >build/rpm/build.log || { cat build/rpm/build.log; exit 1; }
# What the packages bring themselves, they do not ask of the system.
own=$(ls build/rpm/tree/lib/tessera/deps | sed 's/[.+]/\\\\&/g' | paste -sd '|')
rpmbuild -bb --define "_topdir $source/build/rpm/work" --define "_rpmdir $source/build/rpm" --define "source $source" \
  --define "version_of_build $version" --define "own ^($own)" deploy/rpm/tessera.spec >>build/rpm/build.log 2>&1 ||
  { cat build/rpm/build.log; exit 1; }
mv build/rpm/x86_64/*.rpm build/rpm/
rm -r build/rpm/x86_64 build/rpm/work build/rpm/tree
ls -1 "$PWD"/build/rpm/*.rpm
