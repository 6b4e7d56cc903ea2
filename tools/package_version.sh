#!/usr/bin/env bash
# The version of the packages of build/release. Between releases it is the next one's with the time of the last commit,
# 0.1.0~git20261122.213000, which the release itself is newer than.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/release/CMakeCache.txt)
date=$(git log -1 --format=%cD 2>/dev/null || date -R)
git describe --exact-match --match "v$version" >/dev/null 2>&1 || version+="~git$(date -u -d "$date" +%Y%m%d.%H%M%S)"
echo "$version"
