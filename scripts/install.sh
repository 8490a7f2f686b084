#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh: installs what `make build` made. PREFIX, LIBDIR, INCLUDEDIR, MANDIR, BINDIR and DESTDIR come from the
# environment, as do TARGET (cargo's folder) and VERSION.
set -eu
cd "$(dirname "$0")/.."
: "${PREFIX:=/usr/local}" "${DESTDIR:=}" "${TARGET:=target}" "${VERSION:?}"
: "${BINDIR:=$PREFIX/bin}" "${LIBDIR:=$PREFIX/lib}" "${INCLUDEDIR:=$PREFIX/include}" "${MANDIR:=$PREFIX/share/man}"
case $PREFIX in
/*) ;;
*) echo "PREFIX must be an absolute path, not $PREFIX" >&2 && exit 1 ;;
esac
release=$TARGET/release
soname=libioverbs.so.${VERSION%%.*}

# put MODE SOURCE FOLDER/NAME
put() {
    install -D -m "$1" "$2" "$DESTDIR$3"
}

# fill TEMPLATE FOLDER/NAME: puts the template there with its @WORDS@ replaced
fill() {
    up=$(realpath -m -s --relative-to="$LIBDIR/cmake/ioverbs" "$INCLUDEDIR")
    install -d "$(dirname "$DESTDIR$2")"
    sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@LIBDIR@|$LIBDIR|g" -e "s|@INCLUDEDIR@|$INCLUDEDIR|g" \
        -e "s|@VERSION@|$VERSION|g" -e "s|@SONAME@|$soname|g" -e "s|@INCLUDE_FROM_CMAKE@|$up|g" "$1" >"$DESTDIR$2"
    chmod 644 "$DESTDIR$2"
}

put 755 "$release/libioverbs.so.$VERSION" "$LIBDIR/libioverbs.so.$VERSION"
ln -sf "libioverbs.so.$VERSION" "$DESTDIR$LIBDIR/$soname"
ln -sf "$soname" "$DESTDIR$LIBDIR/libioverbs.so"
put 644 "$release/libioverbs_capi.a" "$LIBDIR/libioverbs.a"
[ ! -e "$release/libiov_preload.so" ] || put 755 "$release/libiov_preload.so" "$LIBDIR/libiov_preload.so"
for header in bindings/c/include/*.h bindings/c/include/*.hpp bindings/c/include/ioverbs/*.hpp; do
    put 644 "$header" "$INCLUDEDIR/${header#bindings/c/include/}"
done
fill bindings/c/ioverbs.pc.in "$LIBDIR/pkgconfig/ioverbs.pc"
for file in ioverbs-config.cmake ioverbs-config-version.cmake; do
    fill "bindings/c/cmake/$file.in" "$LIBDIR/cmake/ioverbs/$file"
done
for section in man1 man3 man5 man7 man8; do
    for page in "$TARGET/man/$section"/*; do
        [ ! -e "$page" ] || put 644 "$page" "$MANDIR/$section/${page##*/}"
    done
done
for program in iov iovd; do
    [ ! -e "$release/$program" ] || put 755 "$release/$program" "$BINDIR/$program"
done
# What `mount -t fuse.iov` calls has to be where mount looks.
case $PREFIX in
/usr | /usr/local)
    install -d "$DESTDIR/sbin"
    ln -sf "$BINDIR/iov" "$DESTDIR/sbin/mount.fuse.iov"
    ;;
esac
share=$PREFIX/share
completion() {
    [ ! -e "$TARGET/completions/$1" ] || put 644 "$TARGET/completions/$1" "$share/$2"
}
completion iov.bash bash-completion/completions/iov
completion _iov zsh/site-functions/_iov
completion iov.fish fish/vendor_completions.d/iov.fish
echo "installed IOVerbs $VERSION in $DESTDIR$PREFIX"
[ -n "$DESTDIR" ] || [ "$(id -u)" -ne 0 ] || ldconfig 2>/dev/null || true
