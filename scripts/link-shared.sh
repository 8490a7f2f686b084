#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# link-shared.sh STATIC-LIBRARY FOLDER VERSION: links libioverbs.so.VERSION with its symbol versions into FOLDER.
#
# rustc gives the linker a version script of its own, and only one can count: GNU ld refuses two, lld drops ours without
# a word. So the shared library is linked here, from the static one, with bindings/c/ioverbs.map alone.
set -eu
top=$(dirname "$0")/..
static=$1 folder=$2 version=$3
map=$top/bindings/c/ioverbs.map
soname=libioverbs.so.${version%%.*}
out=$folder/libioverbs.so.$version

roots=$(sed -n 's/^ *\(iov_[a-z0-9_]*\);.*/-Wl,--undefined=\1/p' "$map")
# shellcheck disable=SC2086 # one argument for each symbol
"${CC:-cc}" -shared -o "$out" $roots -Wl,--version-script="$map" -Wl,-soname,"$soname" -Wl,--gc-sections \
    -Wl,-z,defs -Wl,-z,relro,-z,now "$static" -lgcc_s -lpthread -ldl -lm -lc
ln -sf "libioverbs.so.$version" "$folder/$soname"
ln -sf "$soname" "$folder/libioverbs.so"
