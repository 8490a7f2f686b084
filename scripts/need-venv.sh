#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# need-venv.sh [data]: makes .venv from bindings/python/requirements-dev.txt, or requirements-data.txt, which has more; quiet and instant if
# it is up to date.
set -eu
cd "$(dirname "$0")/.."

name=requirements-${1:-dev}.txt
wanted=bindings/python/$name
stamp=.venv/.$name
current() {
    # Each list begins with the first.
    cat bindings/python/requirements-dev.txt "$wanted"
}
if [ -x .venv/bin/python ] && current | cmp -s - "$stamp"; then
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
current >"$stamp"
