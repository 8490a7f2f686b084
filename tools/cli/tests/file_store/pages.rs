//! The kernel's pages of files that programs have open in a mount: what is written there stays in them, and what others write is read.

use crate::{
    calls,
    mounts::{Mounted, has_fuse},
    questions::REQUESTS,
    store::Store,
};

/// Reads and writes in turn, of a file that is open: nobody is asked, and nothing is read that the kernel has written. (A lease that is renewed meanwhile is one
/// request, and so is a look at what others do to it, once a second; who asks with each turn comes to 400.)
const IN_TURN: &str = r#"
import mmap, os
f = os.open("f", os.O_RDWR | os.O_CREAT)
os.pwrite(f, bytes(300_000), 0)
os.fsync(f)
mapped = mmap.mmap(f, 0)
def in_turn(n):
    for i in range(n):
        at = i * 7919 % 299_000
        new = b"%08d" % i
        os.pwrite(f, new, at)
        assert os.pread(f, 8, at) == new and mapped[at:at + 8] == new, (i, at)
in_turn(10)
before = requests()
in_turn(400)
asked = requests() - before
assert asked < 200, asked
size = os.fstat(f).st_size, os.path.getsize("f")
assert size == (300_000, 300_000), size
# An mtime that was set is the one that is told, and hides nothing of what is written.
os.utime(f, ns=(5, 7))
assert os.fstat(f).st_mtime_ns == 7
os.pwrite(f, b"behind", 100)
assert os.fstat(f).st_mtime_ns > 7 and os.pread(f, 6, 100) == b"behind"
os.ftruncate(f, 200_001); os.pwrite(f, b"end", 250_000)
assert os.pread(f, 4, 200_000) == bytes(4) and os.pread(f, 9, 249_998) == b"\0\0end" and mapped[200_001] == 0
"#;

#[test]
fn what_is_written_stays_in_the_pages_of_who_reads_it() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let url = store.url();
    let script = format!("import os\nos.environ.update(IOV={:?}, IOVERBS_URL={url:?})\n", env!("CARGO_BIN_EXE_iov"))
        + REQUESTS
        + IN_TURN;
    std::fs::write(store.path("in_turn.py"), script).unwrap();
    for options in ["", "io_uring=off"] {
        Mounted::new(&store, "mnt", options).shell("rm -f f; python3 $AT/../in_turn.py").ok();
    }
}

/// What another mount writes to a file that is open here is read: at once by who has heard of its length or time, and before long by who only reads; also where
/// this one writes to the same file.
const OTHERS: &str = r#"
import mmap, os, sys, time
here, there, options = sys.argv[1:]
def name(at): return os.path.join(at, "o")
def fd(at, flags): return os.open(name(at), flags)
def soon(what, condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)
with open(name(there), "wb") as f: f.write(b"a" * 5000)
# What was closed there is read by who opens it here (C3), whatever is known here of its length.
for size in 6100, 300, 5000:
    assert os.stat(name(here)).st_size
    other = fd(there, os.O_RDWR)
    os.ftruncate(other, size); os.pwrite(other, b"x", size - 1)
    os.close(other)
    f = fd(here, os.O_RDONLY)
    read = os.pread(f, 9000, 0)
    assert len(read) == size and read[-1:] == b"x", (size, len(read))
    os.close(f)
with open(name(there), "wb") as f: f.write(b"a" * 5000)
f = fd(here, os.O_RDONLY)
mapped = mmap.mmap(f, 0, prot=mmap.PROT_READ)
assert os.pread(f, 9000, 0) == b"a" * 5000 == mapped[:]
other = fd(there, os.O_RDWR)
for n in range(1, 6):
    # It grows, within a page of which there is a part here.
    os.pwrite(other, b"%d" % n * 100, 4900 + 100 * n)
    os.fsync(other)
    size = 5000 + 100 * n
    if n % 2:
        soon(("grown", n), lambda: os.stat(name(here)).st_size == size)
        assert os.lseek(f, 0, os.SEEK_END) == size
        # What is told is mapped.
        with mmap.mmap(f, size, prot=mmap.PROT_READ) as grown: assert grown[size - 100:] == b"%d" % n * 100
    else:
        # Who reads on finds it by himself.
        soon(("more", n), lambda: os.pread(f, 100, size - 100))
    assert os.pread(f, 100, size - 100) == b"%d" % n * 100, n
    assert b"\0" not in os.pread(f, 9000, 0), n
    # Its bytes change: who only reads it, or has it mapped, asks nobody.
    os.pwrite(other, b"B%d" % n, 10 * n)
    soon(("changed", n), lambda: os.pread(f, 2, 10 * n) == b"B%d" % n)
    # (Where pages are of mappings alone, reads drop none.)
    if options != "strict": soon(("mapped", n), lambda: mapped[10 * n:10 * n + 2] == b"B%d" % n)
# Who writes here sees what others write elsewhere, and both are there in the end.
mine = fd(here, os.O_RDWR)
for n in range(5):
    os.pwrite(mine, b"mine", 1000 + 10 * n)
    time.sleep(0.1)
    os.pwrite(other, b"OTHER", 3000 + 10 * n)
    soon(("beside", n), lambda: os.pread(mine, 5, 3000 + 10 * n) == b"OTHER")
    assert os.pread(mine, 4, 1000 + 10 * n) == b"mine"
# Both at the same time: once nobody writes here any more.
for n in range(40):
    os.pwrite(mine, b"%04d" % n, 4000)
    if n % 4 == 3: os.pwrite(other, b"%04d" % n, 4500)
    time.sleep(0.005)
soon("at the same time", lambda: os.pread(f, 4, 4500) == b"0039")
assert os.pread(f, 4, 4000) == b"0039"
# Its length and its bytes at once, for who only reads what was there; and a time that is set here over what others have written.
os.pwrite(other, b"both", 200)
os.pwrite(other, b"longer", 5500)
soon("longer", lambda: os.pread(f, 4, 200) == b"both")
time.sleep(0.5)
os.pwrite(other, b"before", 300)
# (A kernel that drops pages by the time alone is told none then.)
if options != "ttl=0": os.utime(f, ns=(1, 1))
soon("set", lambda: os.pread(f, 6, 300) == b"before")
os.ftruncate(other, 5500)
# Cut and written anew to the same length.
os.ftruncate(other, 0); os.pwrite(other, b"c" * 5500, 0)
soon("anew", lambda: os.pread(f, 9000, 0) == b"c" * 5500)
# What was closed there is read by who opens it here (C3), whoever has written here meanwhile.
os.pwrite(mine, b"mine", 0)
os.pwrite(other, b"closed", 2000)
os.close(other)
os.pwrite(mine, b"again", 100)
g = fd(here, os.O_RDONLY)
assert os.pread(g, 6, 2000) == b"closed" and os.pread(g, 4, 0) == b"mine" and os.pread(g, 5, 100) == b"again"
os.close(mine); os.close(g); os.close(f)
with open(name(there), "rb") as f:
    all = f.read()
assert (all[:4], all[100:105], all[2000:2006], len(all)) == (b"mine", b"again", b"closed", 5500)
"#;

#[test]
fn c3_what_others_write_to_an_open_file_is_read() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    std::fs::write(store.path("others.py"), OTHERS).unwrap();
    for options in ["ttl=0.2", "io_uring=off,ttl=0.2", "ttl=0", "strict"] {
        let (here, there) = (Mounted::new(&store, "here", options), Mounted::new(&store, "there", "ttl=0.2"));
        here.shell(&format!("python3 $AT/../others.py . {} {options}", there.path("").display())).ok();
        drop((here, there));
    }
}

/// Who fills a file goes past the pages that others in the same mount have of it.
const PAST: &str = r#"
import os, time
N = 1000
def lines(n): return b"".join(b"%06d" % i * 20 + b"\n" for i in range(n))
for again in range(3):
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.fork()
    if pid == 0:
        try:
            reader, got, all = os.open("log", os.O_RDONLY), b"", lines(N)
            until = time.monotonic() + 60
            while len(got) < len(all) and time.monotonic() < until:
                # Also what lies before, and the page into which is being written.
                if got: os.pread(reader, 5000, max(0, len(got) - 4000))
                more = os.read(reader, 7000)
                if more: until = time.monotonic() + 60
                else: time.sleep(0.001)
                got += more
                if not all.startswith(got): os._exit(1)
            os._exit(0 if got == all else 3)
        except BaseException: os._exit(2)
    for i in range(N):
        os.write(log, b"%06d" % i * 20 + b"\n")
        if i % 16 == 0: time.sleep(0.002)
    how = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert how == 0, ("other bytes", "failed", "no more bytes")[how - 1]
    os.close(log)
"#;

#[test]
fn what_is_written_past_the_pages_is_read_by_who_has_them() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    std::fs::write(store.path("past.py"), PAST).unwrap();
    for options in ["", "io_uring=off"] {
        Mounted::new(&store, "mnt", options).shell("python3 $AT/../past.py").ok();
    }
}

/// Four processes, each with a stretch of a file that begins and ends within a page: locks it, reads and changes it, and gives it back; behind that all read the next one's.
/// So ROMIO writes what is strided. The arguments are for how many rounds, and the file by the name of each, as many as there are mounts; across mounts who reads locks, too.
const STRETCHES: &str = r#"
struct shared { pthread_barrier_t all; int bad; };
static void locks(int f, short kind, off_t at, off_t len) {
    struct flock lock = {kind, SEEK_SET, at, len, 0};
    if (fcntl(f, F_SETLKW, &lock)) { perror("lock"); _exit(3); }
}
static long wrong(const char *bytes, long len, unsigned value) {
    long n = 0;
    for (long i = 0; i + 4 <= len; i += 4) n += memcmp(bytes + i, &value, 4) != 0;
    return n;
}
MAIN
    enum { PROCESSES = 4, STRETCH = 40000, FIRST = 64, PIECE = 7777 };
    int rounds = atoi(argv[1]), mounts = argc - 2;
    struct shared *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->all, &attr, PROCESSES);
    int made = open(argv[2], O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (made < 0 || ftruncate(made, FIRST + PROCESSES * STRETCH) || close(made)) { perror("make"); return 1; }
    for (int r = 0; r < PROCESSES; r++) if (!fork()) {
        int f = open(argv[2 + r % mounts], O_RDWR), next = (r + 1) % PROCESSES;
        char *own = malloc(STRETCH), *other = malloc(STRETCH);
        off_t at = FIRST + (off_t)STRETCH * r, theirs = FIRST + (off_t)STRETCH * next;
        for (unsigned round = 1; round <= (unsigned)rounds; round++) {
            locks(f, F_WRLCK, at, STRETCH);
            long before = pread(f, own, STRETCH, at) == STRETCH ? wrong(own, STRETCH, round == 1 ? 0 : (round - 1) * 16 + r) : -1;
            for (long i = 0; i < STRETCH; i += 4) memcpy(own + i, &(unsigned){round * 16 + r}, 4);
            for (long i = 0, n; i < STRETCH; i += n) {
                n = STRETCH - i < PIECE ? STRETCH - i : PIECE;
                if (pwrite(f, own + i, n, at + i) != n) { perror("write"); _exit(4); }
            }
            locks(f, F_UNLCK, at, STRETCH);
            pthread_barrier_wait(&s->all);
            if (mounts > 1) locks(f, F_RDLCK, theirs, STRETCH);
            long behind = pread(f, other, STRETCH, theirs) == STRETCH ? wrong(other, STRETCH, round * 16 + next) : -1;
            if (mounts > 1) locks(f, F_UNLCK, theirs, STRETCH);
            if (before || behind) { __sync_fetch_and_add(&s->bad, 1); fprintf(stderr, "%d in round %u: own %ld, next %ld\n", r, round, before, behind); }
            pthread_barrier_wait(&s->all);
        }
        _exit(0);
    }
    int status;
    while (wait(&status) > 0) if (status) s->bad++;
    return s->bad != 0;
"#;

#[test]
fn who_locks_stretches_of_a_file_reads_what_was_written_in_them() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let program = calls::built(&store, STRETCHES);
    let mount = Mounted::new(&store, "mnt", "");
    mount.shell(&format!("{program} 2000 $AT/one")).ok();
    let other = Mounted::new(&store, "other", "");
    mount.shell(&format!("{program} 300 $AT/two {}/two", other.at.display())).ok();
}

/// What the kernel has of a file stays through locks and opens, until another mount has had it open; the arguments are its names in both.
const KEPT: &str = r#"
enum { LEN = 1 << 17 };
static char all[LEN];
static int failed(const char *what) { fprintf(stderr, "%s\n", what); return 1; }
static void locks(int f) {
    for (short kind = F_RDLCK; ; kind = kind == F_RDLCK ? F_WRLCK : F_UNLCK) {
        struct flock lock = {kind, SEEK_SET, 7, 100, 0};
        if (fcntl(f, F_SETLKW, &lock)) { perror("lock"); _exit(3); }
        if (kind == F_UNLCK) break;
    }
    if (flock(f, LOCK_EX) || flock(f, LOCK_UN)) { perror("flock"); _exit(4); }
}
/// How many pages stay of those that were read.
static int stay(int f, void *mapped, const char *name) {
    unsigned char there[LEN / 4096];
    int n = 0;
    if (pread(f, all, LEN, 0) != LEN) return -1;
    locks(f);
    int other = open(name, O_RDWR);
    pwrite(other, "x", 1, 5);
    close(other);
    if (mincore(mapped, LEN, there)) return -2;
    for (unsigned i = 0; i < sizeof there; i++) n += there[i] & 1;
    return n;
}
MAIN
    enum { PAGES = LEN / 4096 };
    int f = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (f < 0 || write(f, all, LEN) != LEN || fsync(f)) return failed("make");
    void *mapped = mmap(0, LEN, PROT_READ, MAP_SHARED, f, 0);
    if (stay(f, mapped, argv[1]) != PAGES) return failed("pages of a new file go with a lock");
    for (int i = 0; i < 20; i++) {
        char theirs[7];
        snprintf(theirs, sizeof theirs, "%06d", i);
        int other = open(argv[2], O_RDWR);
        if (i % 2 && stay(f, mapped, argv[1]) == PAGES) return failed("pages stay though others may write");
        if (pwrite(other, theirs, 6, 70000) != 6 || close(other)) return failed("write there");
        if (i % 4 < 2) locks(f);
        int anew = open(argv[1], O_RDONLY);
        char read[7] = "";
        pread(i % 4 < 2 ? f : anew, read, 6, 70000);
        close(anew);
        if (strcmp(read, theirs)) { fprintf(stderr, "%d: read %s, not %s\n", i, read, theirs); return 1; }
    }
    // The other mount tells of its close behind that.
    for (int i = 0; stay(f, mapped, argv[1]) != PAGES; i++) {
        if (i == 2000) return failed("pages do not stay though nobody else has it open");
        usleep(10000);
    }
    return 0;
"#;

#[test]
fn pages_stay_through_locks_until_others_may_have_written() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let program = calls::built(&store, KEPT);
    let mount = Mounted::new(&store, "mnt", "");
    let other = Mounted::new(&store, "other", "");
    mount.shell(&format!("{program} $AT/kept {}/kept", other.at.display())).ok();
}

/// Two mounts cut and lengthen one file in turn, each under a lock, or between an open and a close: the other one reads all of it then, and no more. The arguments are its names.
const LENGTHS: &str = r#"
enum { MOST = 70000 };
static char all[MOST + 100];
static const char **names;
static int locked, kept[2];
static int begin(int mount) {
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
    int f = locked ? kept[mount] : open(names[mount], O_RDWR);
    if (f < 0 || (locked && fcntl(f, F_SETLKW, &lock))) { perror("begin"); _exit(3); }
    return f;
}
static void end(int f) {
    struct flock lock = {F_UNLCK, SEEK_SET, 0, 0, 0};
    if (locked ? fcntl(f, F_SETLK, &lock) : close(f)) { perror("end"); _exit(4); }
}
MAIN
    names = (const char **)argv + 1;
    int wrong = 0, len = MOST;
    for (int i = 0; i < 2; i++)
        if ((kept[i] = open(names[i], O_RDWR | O_CREAT, 0600)) < 0) { perror("make"); return 1; }
    pwrite(kept[0], all, MOST, 0); fsync(kept[0]);
    for (int round = 0; round < 800; round++) {
        locked = round / 100 % 2;
        for (int mount = 1; mount >= 0; mount--) {
            int f = begin(mount), n = pread(f, all, sizeof all, 0);
            if (n != len) { fprintf(stderr, "round %d, mount %d, locked %d: %d bytes, not %d\n", round, mount, locked, n, len); wrong++; }
            // Shorter, and longer, by turns.
            if (round % 3 == mount) { len = 1000 + (round * 7919) % 60000 % len; if (ftruncate(f, len)) perror("cut"); }
            else { int more = 1 + (round * 31) % 5000; if (len + more > MOST) more = MOST - len; if (pwrite(f, all, more, len) != more) perror("write"); len += more; }
            end(f);
        }
    }
    // On a busy machine the kernel may throw a length away, where something is dropped just then.
    return wrong > 3;
"#;

#[test]
fn c3_who_opens_or_locks_what_another_mount_has_cut_reads_to_its_end() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let program = calls::built(&store, LENGTHS);
    let mount = Mounted::new(&store, "mnt", "");
    let other = Mounted::new(&store, "other", "");
    mount.shell(&format!("{program} $AT/lengths {}/lengths", other.at.display())).ok();
}
