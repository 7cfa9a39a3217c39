#!/usr/bin/env bash
# Records `octavo demo --tour`: an asciicast (target/recording/tour.cast) and an animated SVG (docs/images/tour.svg).
# Needs Python 3 and the debug build.
set -euo pipefail
cd "$(dirname "$0")/.."
octavo=${CARGO_TARGET_DIR:-target}/debug/octavo
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
mkdir -p target/recording docs/images
"$octavo" --color=always demo --tour > "$output/tour.txt"
python3 hack/recording.py "$output/tour.txt" target/recording/tour.cast docs/images/tour.svg
ls -l target/recording/tour.cast docs/images/tour.svg
