#!/usr/bin/env bash
# Validates a FOCUS dataset with the validator of the FinOps Foundation: hack/focus-validate.sh [FILE]
#
# Without a file, validates the expected export of the tests. PYTHON names Python 3.12; hack/focus-validator.txt has the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

file=$(realpath "${1:-crates/ledger/src/tests/focus.csv}")
readonly file
tools=${XDG_CACHE_HOME:-$HOME/.cache}/octavo/focus-$(sha256sum hack/focus-validator.txt | cut -c 1-12)
readonly tools

if ! [ -x "$tools/bin/focus-validator" ]; then
    echo "==> installing focus-validator from PyPI into $tools (about 650 MB)"
    rm -rf "$tools"
    "${PYTHON:-python3.12}" -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --requirement hack/focus-validator.txt
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The validator reads this file relative to the working directory.
mkdir -p focus_validator/rules
cp "$tools"/lib/python3.*/site-packages/focus_validator/rules/currency_codes.csv focus_validator/rules/
# The validator exits 0 even if a rule fails.
"$tools/bin/focus-validator" --data-file "$file" --validate-version 1.2 --block-download --focus-dataset CostAndUsage \
    --show-violations | tee result.txt
# It also rejects an empty InvoiceId (InvoiceId-C-005-C), which FOCUS requires for charges without an invoice.
if grep FAIL result.txt | grep -vE 'InvoiceId-C-00[05]-'; then
    echo "error: $file violates rules of FOCUS 1.2; see FAIL above" >&2
    exit 1
fi
grep -q PASS result.txt
echo "==> $file satisfies FOCUS 1.2"
