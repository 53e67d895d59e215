#!/usr/bin/env bash
# Write requirements.lock anew from pyproject.toml, for every Python and system at once. Needs uv.
#
# A version that is in the lock already stays as long as it fits: delete its line to let it move.
# Left out: what only Windows needs, and the CUDA libraries, which torch's CUDA build pins itself
# and its CPU build does without.
set -euo pipefail
cd "$(dirname "$0")/.."
new=$(mktemp)
trap 'rm -f "$new"' EXIT
grep -v '^#' requirements.lock >"$new" || true

printf 'pip\nsetuptools\n' |
    uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header \
        --no-annotate --no-emit-package colorama --no-emit-package pywinpty \
        --output-file "$new" pyproject.toml - >/dev/null
{
    echo "# What make env installs: every version pinned, for Python 3.11 to 3.14 on Linux and macOS."
    echo "# Made by scripts/lock.sh from pyproject.toml: change that file, then run the script."
    grep -v -E '^(#|nvidia-|cuda-)' "$new"
} >requirements.lock
