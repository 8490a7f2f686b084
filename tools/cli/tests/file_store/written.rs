//! Who fills a file goes past the kernel's cache of a mount; whoever has it open beside that, and mapped, sees it at once. And what is to last with each write.

use crate::{
    calls::built,
    mounts::{Mounted, has_fuse},
    questions::REQUESTS,
    runs::{has_library, python, shell},
    store::Store,
};

/// A file of three pages and a half, read and mapped by one, and written in pieces that begin and end within pages: by who has filled it and goes on, by others who
/// only write, and by one who does both.
const SEEN: &str = r#"
import mmap, os
old = bytes(range(256)) * 56
filler = os.open('f', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.write(filler, old)
reader = os.open('f', os.O_RDONLY)
mapped = mmap.mmap(reader, 0, mmap.MAP_SHARED, mmap.PROT_READ)
both = os.open('f', os.O_RDWR)
now = bytearray(old)
def same(what):
    there = os.pread(reader, 1 << 20, 0)
    assert there == bytes(now), (what, len(there), len(now))
    assert mapped[:] == bytes(now[:len(old)]), (what, 'mapped')
    assert os.fstat(reader).st_size == len(now), what
same('as it was')
for n, (at, length) in enumerate(((0, 1), (4095, 2), (5000, 3000), (1, 14000), (14300, 36)) * 4):
    writer = os.dup(filler) if n // 5 % 2 == 0 else os.open('f', os.O_WRONLY)
    piece = bytes([at % 251 + 1]) * length
    assert os.pwrite(writer, piece, at) == length
    now[at:at + length] = piece
    same((at, length))
    # One who does both has pages, and what it writes within them is seen by who only writes.
    os.pwrite(both, b'both', at // 2)
    now[at // 2:at // 2 + 4] = b'both'
    same(('both', at))
    os.pwrite(writer, b'w', at // 2 + 2)
    now[at // 2 + 2] = ord('w')
    same(('behind both', at))
    os.close(writer)
# A mapping that is written, and not told yet.
shared = mmap.mmap(both, 0)
shared[4000:4200] = b'm' * 200
writer = filler
os.pwrite(writer, b'x' * 50, 4090)
now[4000:4200] = b'm' * 200
now[4090:4140] = b'x' * 50
same('a mapping')
assert shared[:] == bytes(now[:len(old)])
os.pwrite(writer, b'end', len(now) + 5000)
now += bytes(5000) + b'end'
same('behind the end')
os.ftruncate(writer, 14336)
del now[14336:]
same('cut')
appender = os.open('f', os.O_WRONLY | os.O_APPEND)
assert os.write(appender, b'a' * 700) == 700 and os.lseek(appender, 0, os.SEEK_CUR) == 14336 + 700
now += b'a' * 700
same('appended')
# What lies in a mapping of the same file is written to it, and so is what comes through a pipe and from another file.
assert os.pwrite(writer, memoryview(mapped)[100:9000], 3) == 8900
now[3:8903] = bytes(now[100:9000])
source = os.open('/proc/self/exe', os.O_RDONLY)
sent = os.pread(source, 10000, 7)
os.lseek(writer, 2000, os.SEEK_SET)
assert os.sendfile(writer, source, 7, 10000) == 10000
now[2000:12000] = sent
same('from elsewhere')
"#;

#[test]
fn what_is_only_written_is_seen_by_all_who_have_it_open() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    std::fs::write(store.path("seen.py"), SEEN).unwrap();
    for options in ["", "io_uring=off", "strict"] {
        let m = Mounted::new(&store, "mnt", options);
        m.shell("rm -f f; python3 $AT/../seen.py; cp f g; cmp f g").ok();
    }
}

/// How many requests a file of ten writes is: several more where each of them is to last as what `fsync` was called for. (What is appended, and all in a strict mount, is told with each anyhow.)
const LASTING: &str = r#"
import fcntl
def ten(flags, write):
    before = requests()
    fd = os.open("f", flags | os.O_CREAT, 0o644)
    for i in range(10): write(fd, i)
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_SYNC == flags & os.O_SYNC
    os.close(fd)
    os.unlink("f")
    return requests() - before
def plain(fd, i): os.write(fd, b"x" * 1000)
def there(fd, i): os.pwrite(fd, b"x" * 10, 5000 * i)
def piece(how): return lambda fd, i: os.pwritev(fd, [b"x" * 10], 10 * i, how)
new = os.O_WRONLY | os.O_EXCL
for what, (flags, write), (lasting, as_well) in (
    ("O_DSYNC", (new, plain), (new | os.O_DSYNC, plain)),
    ("O_SYNC", (new, plain), (new | os.O_SYNC, plain)),
    ("both ways", (os.O_RDWR, plain), (os.O_RDWR | os.O_DSYNC, plain)),
    ("at an offset", (new, there), (new | os.O_DSYNC, there)),
    ("RWF_DSYNC", (new, piece(0)), (new, piece(os.RWF_DSYNC))),
):
    asked = [ten(flags, write), ten(lasting, as_well)]
    # Some are told by themselves anyhow.
    assert asked[1] >= asked[0] + 5, (what, asked)
"#;

#[test]
fn p5_what_is_to_last_with_each_write_is_told_with_it() {
    let store = Store::with_workspace();
    let url = store.url();
    let script = format!("import os\nos.environ.update(IOV={:?}, IOVERBS_URL={url:?})\n", env!("CARGO_BIN_EXE_iov"))
        + REQUESTS
        + LASTING;
    if has_library() {
        python(&store, &format!("import os\nos.chdir('/iov/w')\n{script}")).ok();
    }
    if has_fuse() {
        std::fs::write(store.path("lasting.py"), script).unwrap();
        Mounted::new(&store, "mnt", "").shell("python3 $AT/../lasting.py").ok();
    }
}

#[test]
fn what_is_to_last_of_all_that_is_open_is_told_to_all() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0644), d = open(".", O_RDONLY | O_DIRECTORY), made;
        int g = open("g", O_CREAT | O_RDWR, 0644); char name[] = "after 0";
        for (int i = 0; i < 4; i++) {
            write(f, "more", 4);
            i == 0 ? sync() : i == 1 ? syncfs(g) : i == 2 ? syncfs(d) : (int)syscall(SYS_sync);
            name[6] = '0' + i; close(open(name, O_CREAT | O_WRONLY, 0644));
            struct stat s; sprintf(b, "seen %d", i); for (int n = 0; n < 1000 && stat(b, &s); n++) usleep(10000);
        }
        printf("%s\n", E(syncfs(open("f", O_PATH))));"#;
    let program = built(&store, &format!("static char b[99]; MAIN {body}"));
    let script = format!(
        "{program} & for i in 0 1 2 3; do until test -e \"after $i\"; do sleep 0.01; done; stat -c %s f; : > \"seen $i\"; done; wait"
    );
    assert_eq!(shell(&store, &script).ok().text(), "4\n8\n12\n16\nEBADF\n");
}
