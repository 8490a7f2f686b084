#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package is built into .venv of this tree, unless $PYTHON names an interpreter that has it.
set -eu
if [ -z "${PYTHON:-}" ]; then
    command -v python3 >/dev/null || { echo "python3 is missing" >&2 && exit 77; }
    top=$(dirname "$(dirname "$EXAMPLE")")
    PYTHON=$top/.venv/bin/python
    "$top/scripts/need-venv.sh"
    flag=
    [ "$(basename "$EXAMPLE_TARGET")" != release ] || flag=--release
    # shellcheck disable=SC2086 # no flag is no word
    VIRTUAL_ENV=$top/.venv CARGO_TARGET_DIR=$(dirname "$EXAMPLE_TARGET") \
        "$top/.venv/bin/maturin" develop --quiet $flag --manifest-path "$top/bindings/python/Cargo.toml" >&2
fi
exec "$PYTHON" "$EXAMPLE/simulation.py"
