#!/usr/bin/env bash
# The main job in a minute: real scientific data (the GSHHG shorelines, NetCDF, from a Debian package) is stored with
# metadata, searched, read back by another process in another language, and compared; then what two sets of controls lead to.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
target=$(realpath -m "${TARGET:-target}")
scripts/need-apt.sh gmt-gshhg-low
scripts/need-venv.sh
bin=$target/release
export PATH=$bin:$PATH IOVERBS_IOVD=$bin/iovd
# One target directory for both workspaces: what `make build` has made is not made again.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! CARGO_TARGET_DIR=$target VIRTUAL_ENV=$top/.venv .venv/bin/maturin develop --quiet --release \
    --manifest-path bindings/python/Cargo.toml >"$log" 2>&1; then
    cat "$log" >&2
    echo 'The Python package could not be built, see above.' >&2
    exit 1
fi

export IOVERBS_URL=${IOVERBS_DEMO_URL:-file:$target/demo-store}
data=/usr/share/gmt-gshhg
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Shows a command as one would type it, and runs it.
run() {
    local word line=
    for word; do
        case $word in *[!A-Za-z0-9_./:=,-]*) word="'$word'" ;; esac
        line+=" $word"
    done
    printf '\033[2m$%s\033[0m\n' "$line"
    "$@"
}

say "1. A workspace for the shorelines, with an index on the resolution (the store: $IOVERBS_URL)"
if iov ws show shorelines >/dev/null 2>&1; then
    echo "It is there from the last time: the files below replace those in it."
else
    run iov ws create shorelines --index resolution
fi

say "2. Nine NetCDF files go in, each with what it is"
for file in "$data"/binned_*.nc; do
    name=$(basename "$file" .nc)                  # binned_GSHHS_c
    kind=$(echo "$name" | cut -d_ -f2)
    case ${name##*_} in c) resolution=crude ;; l) resolution=low ;; i) resolution=intermediate ;; esac
    case $kind in GSHHS) kind=shoreline ;; esac
    run iov put "$file" "shorelines/$name" --if-exists replace -c profile=dataset \
        -m "kind=$kind" -m "resolution=$resolution" -m "format=NetCDF" -m "bytes=$(stat -c %s "$file")" \
        -m "sha256=$(sha256sum "$file" | cut -d' ' -f1)"
done
run iov ls -l shorelines

say "3. Found again by what they are, not by where they lie"
run iov find shorelines 'resolution = "intermediate" and kind in ("shoreline", "river")'
run iov find shorelines 'bytes > 1MB and exists(sha256)' --count

say "4. Read back by another process, in another language; checksums compared"
run .venv/bin/python scripts/demo.py

say "5. What controls lead to: a dataset that is sealed, and a checkpoint that must survive power loss"
run iov explain shorelines -c profile=dataset
run iov explain shorelines -c profile=checkpoint,request_size=47008

say "6. The same files in a store in shared memory, copied by each program itself; and gone again"
fast=$target/demo-fast
run iov up --dir "$fast" --storage shmem:64MiB
(
    export IOVERBS_URL=file:$fast
    trap 'run iov down' EXIT
    iov ws show scratch >/dev/null 2>&1 || iov ws create scratch
    run iov --stats put "$data"/binned_*_i.nc scratch --if-exists replace 2>&1 | grep -v '_requests\|round_trips\|batches'
    for file in "$data"/binned_*_i.nc; do iov cat "scratch/$(basename "$file")" | cmp - "$file"; done
    echo 'What was read back is what was put in.'
    run iov df
)

say "7. A second daemon gives a store memory, in a network namespace of its own where that may be made: bytes go there by TCP"
scripts/demo-two.sh "$target/demo-two" "$data"/binned_*_i.nc

say "What to try next"
cat <<EOF
  export PATH=$bin:\$PATH IOVERBS_URL=$IOVERBS_URL
  iov get shorelines/binned_GSHHS_l shoreline.nc      the bytes, as a plain file
  iov find shorelines 'kind ~ "riv*"' --json          predicates: docs/guide/search.md
  iov stat shorelines/binned_GSHHS_c                  facts, metadata, and what was promised
  examples/                                           the same in C, C++, Python and shell
  make test                                           everything that is promised here, tested
EOF
