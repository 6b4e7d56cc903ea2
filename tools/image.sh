#!/usr/bin/env bash
# image.sh: builds the image of dist/ by podman. IMAGE is its name, BASE the image below it: Debian 12 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
IMAGE=${IMAGE:-localhost/tessera:$(sed -n 's/^project(.* VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)}
BASE=${BASE:-docker.io/library/debian:bookworm-slim}
[[ -x dist/bin/tessera-kubelet ]] || { echo "image.sh: there is no dist/bin/tessera-kubelet; run 'make dist' first" >&2; exit 1; }
# Only what the Containerfile copies, which may be far less than what lies here.
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/deploy/image"
cp -a dist "$context/dist"
cp -a deploy/image/. "$context/deploy/image/"
tools/flat_seccomp.py /usr/share/containers/seccomp.json >"$context/seccomp.json"
podman build --quiet --build-arg BASE="$BASE" --tag "$IMAGE" --file deploy/image/Containerfile "$context" >/dev/null
echo "image: $IMAGE"
