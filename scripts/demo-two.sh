#!/usr/bin/env bash
# demo-two.sh DIRECTORY FILE…: a store whose catalog is here and whose bytes are at another daemon, in a network namespace of its
# own (as on another machine) if this user may make one. Stores the files, reads them back, tells how the bytes went.
set -euo pipefail
dir=$1
shift
one=$dir/catalog two=$dir/targets
rm -rf "$dir"
mkdir -p "$dir"
space=iovdemo$$ inside=() here=127.0.0.1

show() {
    printf '\033[2m$ %s\033[0m\n' "$*"
    "$@"
}

# Interfaces of at most 15 characters, on a network that nobody else has.
make_space() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null || return 1
    ip netns add "$space" 2>/dev/null || return 1
    ip link add "iova$$" type veth peer name "iovb$$" netns "$space" &&
        ip address add 10.213.77.1/30 dev "iova$$" && ip link set "iova$$" up &&
        ip -n "$space" address add 10.213.77.2/30 dev "iovb$$" && ip -n "$space" link set "iovb$$" up &&
        ip -n "$space" link set lo up
}

clean_up() {
    iov -S "file:$two" down >/dev/null 2>&1 || true
    iov -S "file:$one" down >/dev/null 2>&1 || true
    ip netns delete "$space" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

if make_space 2>/dev/null; then
    inside=(ip netns exec "$space") here=10.213.77.1
else
    echo 'No network namespace can be made here: both daemons listen on loopback.'
fi
show iov up --dir "$one" --storage files --listen "$here:0"
address=$(sed -n 's/^on //p' "$one/listen" | head -n 1)
show "${inside[@]}" iov up --dir "$two" --storage shmem:64MiB --join "$address" --secret "$one/secret"
export IOVERBS_URL=file:$one
show iov nodes
show iov net
show iov ws create results
show iov pattern set results --storage shmem
# With the counters that tell how the bytes went.
counted() {
    printf '\033[2m$ %s\033[0m\n' "$*"
    "$@" 2>&1 | grep -E '^bytes_'
}
counted iov --stats put "$@" results
for file; do
    counted iov --stats get "results/$(basename "$file")" "$dir/copy"
    cmp "$dir/copy" "$file"
done
echo 'What was read back is what was put in.'
