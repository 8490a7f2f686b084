#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Nothing is to be built: iov is in the path.
set -eu
for tool in gzip awk od; do
    command -v "$tool" >/dev/null || { echo "$tool is missing" >&2 && exit 77; }
done
exec "$EXAMPLE/simulation.sh" "$@"
