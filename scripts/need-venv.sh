#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# need-venv.sh: makes .venv from bindings/python/requirements-dev.txt; quiet and instant if it is up to date.
set -eu
cd "$(dirname "$0")/.."

wanted=bindings/python/requirements-dev.txt
stamp=.venv/.requirements-dev.txt
if [ -x .venv/bin/python ] && cmp -s "$wanted" "$stamp"; then
    exit 0
fi

command -v python3 >/dev/null 2>&1 || scripts/need-apt.sh python3
python3 -c 'import ensurepip, venv' 2>/dev/null || scripts/need-apt.sh python3-venv

echo "making .venv from $wanted" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rm -f "$stamp"
if ! { [ -x .venv/bin/python ] || python3 -m venv --clear .venv; } >"$log" 2>&1 \
    || ! .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$wanted" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "The Python packages of $wanted could not be installed, see above." >&2
    exit 1
fi
cp "$wanted" "$stamp"
