#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# need-apt.sh PACKAGE[=COMMAND] ...: installs the Debian packages that are missing; quiet and instant if none is.
# With =COMMAND a package counts as present when that command is found, wherever it comes from.
set -eu

missing=
for want in "$@"; do
    package=${want%%=*}
    if [ "$want" != "$package" ] && command -v "${want#*=}" >/dev/null 2>&1; then
        continue
    fi
    # shellcheck disable=SC2016 # the dollar is for dpkg-query
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

by_hand() {
    echo "These packages are needed and not here:$missing" >&2
    echo "$1. Install them by hand, then run make again (names as on Debian 12)." >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || by_hand "There is no apt-get on this system"
if [ "$(id -u)" -eq 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    by_hand "Installing needs root, and sudo is not to be had"
fi

echo "installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is meant to fall into words
if ! { $as_root apt-get update -q && $as_root apt-get install -y -q --no-install-recommends $missing; } \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    by_hand "apt-get failed, see above"
fi
