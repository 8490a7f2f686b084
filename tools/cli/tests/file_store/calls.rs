//! Calls that programs in `iov run` make seldom, and what a system says to those that ask for the impossible.

use std::process::Command;

use crate::{
    mounts::{Mounted, has_fuse},
    runs::{has_library, python, run, shell},
    store::{Ran, Store},
};

/// A program in C, run in the workspace; functions may be in front of what it does, with `MAIN` between.
pub(crate) fn compiled(store: &Store, body: &str) -> Ran {
    shell(store, &built(store, body))
}

/// The same program, to be run.
pub(crate) fn built(store: &Store, body: &str) -> String {
    let (functions, body) = body.split_once("MAIN").unwrap_or(("", body));
    let headers = [
        "dirent",
        "errno",
        "fcntl",
        "ftw",
        "linux/aio_abi",
        "pthread",
        "setjmp",
        "stdio",
        "string",
        "unistd",
        "signal",
        "spawn",
        "stdlib",
        "time",
        "sys/file",
        "sys/inotify",
        "sys/mman",
        "sys/resource",
        "sys/sendfile",
        "sys/stat",
        "sys/syscall",
        "sys/uio",
        "sys/wait",
        "sys/xattr",
    ];
    let mut source: String = "#define _GNU_SOURCE\n".to_owned();
    source.extend(headers.map(|header| format!("#include <{header}.h>\n")));
    source += "#define E(call) (errno = 0, (call) < 0 ? strerrorname_np(errno) : \"done\")\n";
    source += &format!("{functions}\nint main(int argc, char **argv) {{ {body} return 0; }}");
    let source = store.file("program.c", source.as_bytes());
    let program = store.path("program");
    let built = Command::new("cc").args(["-w", "-o", program.to_str().unwrap(), &source]).status().unwrap();
    assert!(built.success());
    program.to_str().unwrap().to_owned()
}

#[test]
fn calls_by_number_are_those_of_the_functions() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR | O_TRUNC, 0644); char b[20] = {0}; struct stat s;
        struct iovec r = {b, 5}, w = {"ABC", 3};
        write(f, "0123456789", 10);
        long wrote = syscall(SYS_pwritev2, f, &w, 1, 2L, 0L, 0);
        printf("%ld %ld\n", wrote, syscall(SYS_preadv2, f, &r, 1, 0L, 0L, 0));
        printf("%s\n", b);
        syscall(SYS_pwritev, f, &w, 1, 6L, 0L); pread(f, b, 10, 0); printf("%s\n", b);
        syscall(SYS_fchmod, f, 0600); fstat(f, &s); printf("%o\n", s.st_mode);
        syscall(SYS_fchmodat, AT_FDCWD, "f", 0640); syscall(SYS_truncate, "f", 3L);
        stat("f", &s); printf("%o %ld\n", s.st_mode, (long)s.st_size);
        syscall(452, AT_FDCWD, "f", 0604, 0); stat("f", &s); printf("%o\n", s.st_mode);
        syscall(SYS_mkdir, "d", 0755); syscall(SYS_symlink, "f", "l"); printf("%d %d\n", access("d", F_OK), access("l", F_OK));
        syscall(SYS_setxattr, "f", "user.a", "v", 1L, 0); printf("%ld %ld\n", getxattr("f", "user.a", b, 9), syscall(SYS_flistxattr, f, b, 20L));
        syscall(SYS_chdir, "d"); printf("%ld %s\n", syscall(SYS_getcwd, b, 20L), b);"#;
    let said = compiled(&store, body).ok().text();
    assert_eq!(said, "3 5\n01ABC\n01ABC5ABC9\n100600\n100640 3\n100604\n0 0\n1 7\n9 /iov/w/d\n");
    assert!(store.cat("w/f") == b"01A");
}

#[test]
fn what_cannot_be_done_has_the_error_that_the_system_gives() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0644), p = open("f", O_PATH), o = open("/etc/hostname", O_RDONLY); char b[8]; struct statx x; struct stat s;
        symlink("f", "l"); long at = 0;
        printf("%s ", E(fchmodat(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW)));
        printf("%s ", E(lsetxattr("l", "user.a", "v", 1, 0)));
        printf("%s ", E(lgetxattr("l", "user.a", b, 8)));
        printf("%s ", E(setxattr("f", "user.", "v", 1, 0)));
        printf("%s %s %s\n", E(fchmod(p, 0600)), E(fgetxattr(p, "user.a", b, 8)), E(futimens(p, 0)));
        printf("%s ", E(statx(AT_FDCWD, "f", 0x40000000, 0, &x)));
        printf("%s ", E(fstatat(AT_FDCWD, "f", &s, 0x40000000)));
        printf("%s ", E(unlinkat(AT_FDCWD, "f", 0x40000000)));
        printf("%s ", E(copy_file_range(f, 0, f, 0, 1, 1)));
        printf("%s ", E(sync_file_range(f, 0, 0, 8)));
        printf("%s\n", strerrorname_np(posix_fadvise(f, 0, 0, 99)));
        printf("%s %s %s\n", E(rename("", "e")), E(link("", "e")), E(rename("/etc/hostname", "e")));
        syscall(SYS_getcwd, b, 0); errno = EDOM; char c[99]; getcwd(c, 99); printf("%s\n", strerrorname_np(errno));
        off_t from = 0, to = 4; char all[20] = ""; pwrite(f, "0123456789", 10, 0);
        printf("%s ", E(copy_file_range(f, &from, f, &to, 5, 0))); to = 5;
        printf("%ld ", (long)copy_file_range(f, &from, f, &to, 5, 0)); pread(f, all, 19, 0); printf("%s\n", all);
        for (int i = 0; i < 2; i++) {
            mkdir("/iov/w/gone", 0755); chdir("/iov/w/gone"); printf("%s ", getcwd(c, 99)); rmdir("/iov/w/gone");
            printf("%s ", getcwd(c, 99) ? c : strerrorname_np(errno));
            mkdir("/iov/w/gone", 0755); printf("%s\n", getcwd(c, 99) ? c : strerrorname_np(errno)); rmdir("/iov/w/gone");
        }"#;
    let said = compiled(&store, body).ok().text();
    assert_eq!(
        said,
        "EOPNOTSUPP EPERM ENODATA EINVAL EBADF EBADF EBADF\nEINVAL EINVAL EINVAL EINVAL EINVAL EINVAL\nENOENT ENOENT EXDEV\nEDOM\nEINVAL 5 0123401234\n/iov/w/gone ENOENT ENOENT\n/iov/w/gone ENOENT ENOENT\n"
    );
}

#[test]
fn how_one_write_is_done_can_be_said() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import errno, os
f = os.open('a', os.O_RDWR | os.O_CREAT); os.write(f, b'0123456789')
print(os.pwritev(f, [b'X', b'YZ'], 0, 0x10), os.pread(f, 99, 0), os.lseek(f, 0, 1))
print(os.pwritev(f, [b'ab'], -1, 0x10), os.lseek(f, 0, 1), os.write(f, b'c'), os.pread(f, 99, 10))
print(os.pwritev(f, [b'0'], 0, os.RWF_DSYNC), os.pwritev(f, [b'1'], 1, os.RWF_SYNC))
for call in lambda: os.pwritev(f, [b'x'], 0, 0x4000), lambda: os.preadv(f, [bytearray(2)], 0, 0x4000):
    try: call()
    except OSError as e: print(errno.errorcode[e.errno])";
    let said = python(&store, program).ok().text();
    assert_eq!(said, "3 b'0123456789XYZ' 10\n2 15 1 b'XYZabc'\n1 1\nENOTSUP\nENOTSUP\n");
}

#[test]
fn files_become_no_longer_than_a_process_may_make_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // The shell's limit is in KiB.
    let script = "ulimit -f 100; trap '' XFSZ
        ! head -c 200K /dev/zero > written 2> said; stat -c %s written; grep -c 'large' said
        ! fallocate -l 300K new 2> /dev/null; stat -c %s new
        ! truncate -s 300K new 2> /dev/null; stat -c %s new; truncate -s 100K new; stat -c %s new
        for n in $(seq 11); do head -c 10K /dev/zero >> log || break; done 2> /dev/null; stat -c %s log";
    let said = shell(&store, script).ok().text();
    assert_eq!(said, "102400\n1\n0\n0\n102400\n102400\n");
    // Who does not ignore it ends by it; a limit that is set later holds as well.
    let program = "import os, resource, signal
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
f = os.open('f', os.O_RDWR | os.O_CREAT); print(os.write(f, b'x' * 3000), os.lseek(f, 0, 1))
heard = []; signal.signal(signal.SIGXFSZ, lambda *_: heard.append('XFSZ'))
try: os.write(f, b'y')
except OSError as e: print(e.errno, heard)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(os.write(f, b'z' * 3000), os.fstat(f).st_size)";
    assert_eq!(python(&store, program).ok().text(), "1000 1000\n27 ['XFSZ']\n3000 4000\n");
}

#[test]
fn locks_end_with_the_process_that_took_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Each of these has it only when the one before it has given it back.
    for _ in 0..3 {
        run(&store, &["flock", "-n", "/iov/w/lock", "true"]).ok();
    }
    for kind in ["flock", "lockf"] {
        let program = format!(
            "import fcntl, os, signal, time
r, w = os.pipe(); child = os.fork(); f = open('{kind}', 'w')
if child == 0:
    fcntl.{kind}(f, fcntl.LOCK_EX); os.write(w, b'x'); time.sleep(1000)
os.read(r, 1); begun = time.monotonic()
try: fcntl.{kind}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError: print('held')
os.kill(child, signal.SIGKILL); os.wait(); fcntl.{kind}(f, fcntl.LOCK_EX); print(time.monotonic() - begun < 20)"
        );
        assert_eq!(python(&store, &program).ok().text(), "held\nTrue\n");
    }
}

#[test]
fn times_before_1970_are_kept() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "ttl=0");
    let touch = |file: &str| format!("TZ=UTC touch -d '1960-01-01 00:00:00.25' {file}; stat -c %.2Y {file}");
    shell(&store, &touch("run")).ok();
    let there = format!("{}; stat -c %.2Y run", touch("mounted"));
    let said = Command::new("sh").args(["-ec", &there]).current_dir(m.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "-315619199.75\n-315619199.75\n");
    assert_eq!(shell(&store, "stat -c %.2Y mounted").ok().text(), "-315619199.75\n");
}

#[test]
fn what_came_along_with_an_open_is_read_only_while_it_is_so() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Whoever changes it: the process itself by another descriptor or a path, a child, another program.
    let program = "import os, subprocess
def opened(name, text=b'first'):
    with open(name, 'wb') as f: f.write(text)
    return os.open(name, os.O_RDONLY)
f = opened('a'); print(os.pread(f, 9, 0), os.pread(f, 2, 3), os.pread(f, 9, 5), os.pread(f, 9, 99))
w = os.open('a', os.O_WRONLY); os.write(w, b'SEC'); print(os.pread(f, 9, 0)); os.close(w); print(os.pread(f, 9, 0))
f = opened('b'); os.truncate('b', 2); print(os.pread(f, 9, 0)); open('b', 'ab').write(b'more'); print(os.pread(f, 9, 0))
f = opened('c'); subprocess.run(['sh', '-c', 'echo child > c'], check=True); print(os.pread(f, 9, 0))
r, w = os.pipe(); s, t = os.pipe()
if os.fork() == 0:
    os.read(r, 1); open('d', 'w').write('other'); os.write(t, b'x'); os._exit(0)
f = opened('d'); print(os.pread(f, 9, 0)); os.write(w, b'x'); os.read(s, 1); print(os.pread(f, 9, 0))
f = opened('e'); os.rename('c', 'e'); print(os.pread(f, 9, 0)); os.unlink('e'); print(os.pread(f, 9, 0))
f = opened('g', b'x' * 100000); print(len(os.pread(f, 200000, 0)))";
    let said = python(&store, program).ok().text();
    let expected = "b'first' b'st' b'' b''\nb'SECst'\nb'SECst'\nb'fi'\nb'fimore'\nb'child\\n'\nb'first'\nb'other'\n\
                    b'first'\nb'first'\n100000\n";
    assert_eq!(said, expected);
}

#[test]
fn locks_of_an_open_file_end_with_its_last_descriptor() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    // By F_OFD_SETLK; another descriptor of the file stays open meanwhile.
    let program = "import fcntl, os, struct, time
def take(fd):
    try: fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)); return True
    except BlockingIOError: return False
a, b = os.open('ofd', os.O_RDWR | os.O_CREAT), os.open('ofd', os.O_RDWR)
print(take(a), take(b)); c = os.dup(a); os.close(a); print(take(b)); os.close(c)
end = time.monotonic() + 10
while not take(b): assert time.monotonic() < end; time.sleep(0.01)
print('free')";
    assert_eq!(python(&store, program).ok().text(), "True False\nFalse\nfree\n");
    let m = Mounted::new(&store, "mnt", "");
    let said = Command::new("python3").args(["-c", program]).current_dir(m.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "True False\nFalse\nfree\n", "{said:?}");
}

#[test]
fn who_has_a_lock_is_told() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import fcntl, os, struct
f = open('known', 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 5, 10)
def look(start):
    return struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, start, 9, 0)))
if not (child := os.fork()):
    kind, whence, start, length, pid = look(12)
    print(kind == fcntl.F_WRLCK, whence, start, length, pid == os.getppid(), look(20)[0] == fcntl.F_UNLCK, flush=True); os._exit(0)
os.waitpid(child, 0)";
    assert_eq!(python(&store, program).ok().text(), "True 0 10 5 True True\n");
    let m = Mounted::new(&store, "mnt", "");
    let said = Command::new("python3").args(["-c", program]).current_dir(m.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "True 0 10 5 True True\n", "{said:?}");
    // One that has it in `iov run` is known in a mount too.
    let across = format!(
        "import fcntl, struct, subprocess
f = open('known', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)
subprocess.run(['python3', '-c', 'import fcntl, struct, os; f = open(\"{}\"); print(struct.unpack(\"hhqqi4x\", fcntl.fcntl(f, fcntl.F_GETLK, struct.pack(\"hhqqi4x\", fcntl.F_RDLCK, 0, 0, 0, 0)))[4] == os.getppid())'], env={{}})",
        m.path("known").display()
    );
    assert_eq!(python(&store, &across).ok().text(), "True\n");
}

#[test]
fn who_wants_too_much_hears_of_it_behind_the_call() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Who does not ignore the signal ends by it, and keeps what it has written.
    let ended = shell(&store, "ulimit -f 10; dd if=/dev/zero of=cut bs=1K 2> /dev/null || echo $?").text();
    assert_eq!((ended.trim(), store.cat("w/cut").len()), ("153", 10 << 10));
    // A handler may do anything with the descriptor.
    let body = r#"
        void late(int n) { char b[4]; printf("%ld ", (long)pread(7, b, 4, 0)); lseek(7, 1, SEEK_SET); }
        struct rlimit r = {4, 4}; setrlimit(RLIMIT_FSIZE, &r); signal(SIGXFSZ, late);
        int f = open("f", O_CREAT | O_RDWR, 0644); dup2(f, 7);
        printf("%ld ", (long)write(7, "123456", 6)); printf("%s ", E(write(7, "x", 1)));
        struct iovec v = {"x", 1}; lseek(7, 4, SEEK_SET); printf("%s ", E(pwritev2(7, &v, 1, 4, 0)));
        int o = open("f", O_RDONLY); printf("%s\n", E(pwritev2(o, &v, 1, 0, 0)));"#;
    assert_eq!(compiled(&store, body).ok().text(), "4 4 EFBIG 4 EFBIG EBADF\n");
}

/// Where a descriptor is that appends: behind what it has written, whoever writes on.
#[test]
fn m4_who_appends_goes_on_behind_what_he_has_appended() {
    const APPENDED: &str = r#"
import os
a = os.open("f", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
b = os.open("f", os.O_RDWR)
at = lambda: os.lseek(a, 0, os.SEEK_CUR)
said = [at()]
os.write(a, b"x" * 100); said.append(at())
os.pwrite(a, b"y" * 10, 5); said.append(at())
os.pwrite(b, b"z" * 50, 110); said += [at(), os.read(a, 20), at()]
os.writev(a, [b"v" * 3, b"w" * 4]); said += [at(), os.fstat(a).st_size]
os.pwritev(b, [b"p"], -1, 16); said += [os.lseek(b, 0, os.SEEK_CUR), at()]
os.ftruncate(b, 7); said += [at(), os.write(a, b""), at(), os.write(a, b"!"), at()]
if os.fork() == 0:
    os.write(a, b"child"); os._exit(0)
os.wait()
said += [at(), os.pread(b, 30, 0)]
print(said)
"#;
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let here = tempfile::tempdir().unwrap();
    let script = here.path().join("appended.py");
    std::fs::write(&script, APPENDED).unwrap();
    let linux = Command::new("python3").arg(&script).current_dir(here.path()).output().unwrap();
    assert!(linux.status.success(), "{}", String::from_utf8_lossy(&linux.stderr));
    let ours = python(&store, &format!("import os\nos.chdir('/iov/w')\n{APPENDED}")).ok();
    assert_eq!(ours.text(), String::from_utf8_lossy(&linux.stdout));
}

/// What is wrong with two names is said in the order of Linux, whatever is wrong with both.
#[test]
fn who_moves_what_cannot_be_moved_hears_what_linux_says() {
    const MOVED: &str = r#"
import ctypes, errno, os, shutil
libc = ctypes.CDLL(None, use_errno=True)
names = ["no", "f", "d", "d/in", "f/x", "no/x", "l/x", "s", "sd/", "n" * 256, "", "d/..", "f/", "no/", "d/sub"]
def fresh():
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
    for name in ("f", "g", "d/in"):
        os.makedirs("d/sub", exist_ok=True); open(name, "w").close()
    os.mkdir("e")
    for name, target in (("l", "l"), ("s", "f"), ("sd", "d"), ("sn", "none")): os.symlink(target, name)
os.mkdir("within"); os.chdir("within"); fresh()
for flags in range(3):
    for old in names:
        said = []
        for new in names:
            if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) == 0:
                said.append("done"); fresh()
            else: said.append(errno.errorcode[ctypes.get_errno()])
        print(flags, old[:9], *said)
"#;
    if !has_library() {
        return;
    }
    let (store, here) = (Store::with_workspace(), tempfile::tempdir().unwrap());
    let linux = Command::new("python3").args(["-c", MOVED]).current_dir(here.path()).output().unwrap();
    assert!(linux.status.success(), "{}", String::from_utf8_lossy(&linux.stderr));
    let ours = python(&store, &format!("import os\nos.chdir('/iov/w')\n{MOVED}")).ok();
    assert_eq!(ours.text(), String::from_utf8_lossy(&linux.stdout));
}
