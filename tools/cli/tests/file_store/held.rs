//! Locks of open files that several programs have (O11, ADR 31).

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use crate::{
    mounts::{Mounted, has_fuse, kill, wait_until},
    runs::{has_library, run, shell},
    store::{Store, finished},
};

/// Processes that hold locks of files of this workspace.
fn holders(store: &Store) -> usize {
    let of = format!("IOVERBS_URL={}\0", store.url());
    let is = |pid: &u32| {
        let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        String::from_utf8_lossy(&line).contains("\0hold-lock\0") && String::from_utf8_lossy(&environment).contains(&of)
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(is).count()
}

#[test]
fn o11_shells_lock_files_that_they_have_open_by_a_program_of_its_own() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
others() { ( flock -n 7 && echo free || echo held ) 7> lock; }
test $(others) = free
# A subshell has it until its end, and not the program that has taken it.
( flock -n 9; test $(others) = held; test $( (flock -ns 7 && echo free || echo held) 7> lock ) = held ) 9> lock
test $(others) = free
# What a shell has open; given back by another program, and by the end of what is open.
exec 8> lock
flock 8; test $(others) = held; flock -u 8; test $(others) = free
shared() { ( flock -ns 7 && echo free || echo held ) 7> lock; }
flock -s 8; test $(others) = held; test $(shared) = free; flock 8; test $(shared) = held
sleep 0.3 8>&8 & exec 8>&-; test $(others) = held; wait; test $(others) = free
# Each waits for the one before.
echo 0 > n
count() { for i in $(seq 5); do ( flock 9; read v < n; echo $((v + 1)) > n ) 9> lock; done; }
count & count & count & wait
test $(cat n) = 15
# A child has what its parent has locked, and when it is killed nobody does.
flock lock sleep 60 & lock=$!
until child=$(pgrep -P $lock -x sleep); do sleep 0.01; done
kill -9 $lock; wait $lock || true; test $(others) = held
kill -9 $child
until test $(others) = free; do sleep 0.01; done
"#;
    shell(&store, script).ok();
    wait_until("whoever holds a lock goes with it", || holders(&store) == 0);
}

#[test]
fn o11_locks_stay_with_open_files_that_are_passed_on() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = r#"
import fcntl, os, signal, struct, time
os.chdir("/iov/w")
EX, SH, UN, NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN, fcntl.LOCK_NB
def had(name, how):
    with open(name, "a+") as f:
        try: fcntl.flock(f, how | NB)
        except BlockingIOError: return False
        return True
def soon(condition):
    until = time.time() + 30
    while not condition():
        assert time.time() < until
        time.sleep(0.01)
def child(work):
    pid = os.fork()
    if pid == 0:
        try: work(); os._exit(0)
        except OSError: os._exit(1)
    return pid

# Who becomes a daemon has what it had locked before.
r, w = os.pipe()
f = open("pid", "w")
fcntl.flock(f, EX)
os.waitpid(child(lambda: os.write(w, b"%d" % child(lambda: time.sleep(60)))), 0)
f.close()
assert not had("pid", SH)
os.kill(int(os.read(r, 20)), signal.SIGKILL)
soon(lambda: had("pid", EX))

# Shared ones, changed into each other, by either process.
f = open("pid", "a+")
fcntl.flock(f, SH)
r, w = os.pipe()
done, does = os.pipe()
def step(how): os.read(r, 1); fcntl.flock(f, how); os.write(does, b"x")
pid = child(lambda: (step(EX | NB), step(UN), os.read(r, 1)))
os.close(does)
# (Nobody looks before the child has done it: who looks has a lock meanwhile.)
def told(): os.write(w, b"x"); assert os.read(done, 1)
assert had("pid", SH) and not had("pid", EX)
told(); assert not had("pid", SH)
told(); assert had("pid", EX)
fcntl.flock(f, EX | NB); assert not had("pid", SH)
os.write(w, b"x"); os.waitpid(pid, 0)
assert not had("pid", SH)
f.close(); assert had("pid", EX)

# What is closed last is free at once, by whichever process; also of what has no name.
def ends():
    f = open("pid", "w"); fcntl.flock(f, EX)
    os.waitpid(child(lambda: None), 0)
for _ in range(5):
    os.waitpid(child(ends), 0); assert had("pid", EX)
    f = open("pid", "w"); fcntl.flock(f, EX); os.waitpid(child(lambda: None), 0); f.close(); assert had("pid", EX)
f = open("gone", "w"); os.unlink("gone"); fcntl.flock(f, EX)
assert os.waitpid(child(lambda: (fcntl.flock(f, EX | NB), fcntl.flock(f, UN))), 0)[1] == 0

# Both want it at once: it is one open file.
f = open("both", "w")
pid = child(lambda: fcntl.flock(f, EX | NB)); fcntl.flock(f, EX | NB)
assert os.waitpid(pid, 0)[1] == 0

# Another user gives back what root has locked.
if os.getuid() == 0:
    f = open("pid", "w"); fcntl.flock(f, EX)
    assert os.waitpid(child(lambda: (os.setuid(65534), fcntl.flock(f, UN))), 0)[1] == 0
    assert had("pid", EX)

# Another program in its place.
pid = child(lambda: (f := os.open("pid", os.O_RDWR), os.set_inheritable(f, True), fcntl.flock(f, EX), os.execvp("cat", ["cat", "/dev/zero"])))
soon(lambda: not had("pid", SH))
os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); soon(lambda: had("pid", EX))

# Parts, and whose they are.
def part(kind, start, len): return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, len, 0)
f = open("parts", "w+b")
pid = child(lambda: (fcntl.fcntl(f, fcntl.F_OFD_SETLK, part(fcntl.F_WRLCK, 10, 5))))
os.waitpid(pid, 0)
g = open("parts", "r+b")
found = struct.unpack("hhqqi4x", fcntl.fcntl(g, fcntl.F_OFD_GETLK, part(fcntl.F_RDLCK, 0, 100)))
assert found == (fcntl.F_WRLCK, os.SEEK_SET, 10, 5, -1), found
assert struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_OFD_GETLK, part(fcntl.F_WRLCK, 0, 0)))[0] == fcntl.F_UNLCK
fcntl.fcntl(g, fcntl.F_OFD_SETLK, part(fcntl.F_WRLCK, 15, 0))
try: fcntl.fcntl(f, fcntl.F_OFD_SETLK, part(fcntl.F_WRLCK, 12, 5)); assert False
except BlockingIOError: pass
f.close()
def whole():
    try: fcntl.fcntl(g, fcntl.F_OFD_SETLK, part(fcntl.F_WRLCK, 0, 0)); return True
    except BlockingIOError: return False
soon(whole)

# Who gets a lock reads what was written under it.
f = os.open("data", os.O_CREAT | os.O_RDWR)
os.write(f, b"old")
r, w = os.pipe()
def reads():
    fcntl.flock(f, EX); os.write(w, os.pread(f, 9, 0))
g = open("data", "r+b", buffering=0)
fcntl.flock(g, EX)
pid = child(reads)
time.sleep(0.1)
g.write(b"newer"); fcntl.flock(g, UN)
os.waitpid(pid, 0)
assert os.read(r, 9) == b"newer"
"#;
    std::fs::write(store.path("locks.py"), program).unwrap();
    run(&store, &["--", "python3", store.path("locks.py").to_str().unwrap()]).ok();
    wait_until("whoever holds a lock goes with it", || holders(&store) == 0);
}

/// Neither mounts nor those who come after the daemon was killed get what a shell has locked.
#[test]
fn o11_what_is_held_is_so_for_all_doors_and_daemons() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    m.shell("touch f").ok();
    let mut command = store.command(&["run", "bash", "-euc", "cd /iov/w; exec 9> f; flock 9; echo has; read line"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), holders(&store)), ("has\n", 1));
    m.shell("! flock -n f true").ok();
    let daemon = store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].as_u64().unwrap();
    kill(daemon as u32, "KILL");
    m.shell("for i in $(seq 40); do if flock -n f true; then exit 9; fi; sleep 0.1; done").ok();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    finished(child, 60).ok();
    m.shell("until flock -n f true; do sleep 0.1; done").ok();
    wait_until("whoever holds a lock goes with it", || holders(&store) == 0);
}

#[test]
fn o10_what_has_no_name_is_used_by_children_that_have_it_open() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
exec 3<> deleted; echo "some text" >&3; rm deleted
python3 -c 'import os; st = os.fstat(3); os.lseek(3, 0, 0); assert (os.read(3, 4), st.st_nlink, st.st_size) == (b"some", 0, 10); os.write(3, b" more")'
python3 -c 'import os; assert (os.pread(3, 99, 0), os.lseek(3, 0, 1)) == (b"some more\n", 9)'
python3 - << 'END'
import os, subprocess, tempfile
def deleted():
    f = open("named", "w+b"); os.unlink("named")
    return f
for f in (tempfile.TemporaryFile(dir="."), deleted()):
    f.write(b"begins\n"); f.flush()
    subprocess.run(["bash", "-c", "echo a shell"], stdout=f, check=True)
    f.seek(0)
    assert subprocess.run(["cat"], stdin=f, capture_output=True, check=True).stdout == b"begins\na shell\n"
    pid = os.fork()
    if pid == 0:
        f.write(b"forked\n"); f.flush(); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    f.seek(0)
    assert f.read() == b"begins\na shell\nforked\n"
    assert os.listdir(".") == [], os.listdir(".")
# Also where who has made it closes it, or ends, before anybody else has looked.
for f in (tempfile.TemporaryFile(dir="."), deleted()):
    f.write(b"given"); f.seek(0)
    given = subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE)
    f.close()
    assert given.communicate()[0] == b"given"
r, w = os.pipe()
if os.fork() == 0:
    f = tempfile.TemporaryFile(dir="."); f.write(b"left"); f.flush()
    if os.fork() == 0:
        os.read(r, 1); f.seek(0); os._exit(0 if f.read() == b"left" and os.write(1, b"left\n") else 1)
    os._exit(0)
os.wait(); os.write(w, b"x"); os.close(w); os.close(r)
END
# A shell puts what is long into a file, deletes it, and runs the program in its own place.
export TMPDIR=$PWD; long=$(seq 40000)
test $(wc -c <<< "$long") = 228894
test $( (exec cat) <<< "$long" | tail -1) = 40000
"#;
    assert!(shell(&store, script).ok().text().contains("left"));
    wait_until("whoever has it open goes with it", || holders(&store) == 0);
}

#[test]
fn o11_signals_end_the_wait_for_a_lock_whenever_they_come() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = r#"
import ctypes, fcntl, os, signal, sys, threading
libc = ctypes.CDLL(None)
if len(sys.argv) > 1: os.chdir(sys.argv[1])
class Late(Exception): pass
came = []
def late(*_): came.append(1); raise Late
f = open("l", "w"); fcntl.flock(f, fcntl.LOCK_EX)
g = open("l", "w")
for shared in (False, True):
    if shared and os.fork() == 0: os._exit(0)
    if shared: os.wait()
    signal.signal(signal.SIGALRM, late)
    for n in range(40):
        signal.setitimer(signal.ITIMER_REAL, 0.005 + n * 0.0007)
        try: fcntl.flock(g, fcntl.LOCK_EX); assert False
        except Late: pass
    # One whose handler lets calls go on does not end it.
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)): signal.siginterrupt(number, False)
    signal.signal(signal.SIGALRM, lambda *_: came.append(2)); signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    threading.Timer(0.3, lambda: fcntl.flock(f, fcntl.LOCK_UN)).start()
    assert libc.flock(g.fileno(), fcntl.LOCK_EX) == 0
    assert came[-1] == 2
    fcntl.flock(g, fcntl.LOCK_UN); fcntl.flock(f, fcntl.LOCK_EX)
print("heard")
"#;
    let path = store.path("signals.py");
    std::fs::write(&path, program).unwrap();
    let path = path.to_str().unwrap();
    let ran = run(&store, &["--", "python3", path, "/iov/w"]).ok();
    assert_eq!(
        ran.text(),
        "heard
"
    );
    if has_fuse() {
        let m = Mounted::new(&store, "mnt", "");
        let begun = std::time::Instant::now();
        m.shell(&format!("python3 {path}")).ok();
        // Not each after a second.
        assert!(begun.elapsed().as_secs() < 40);
    }
}

/// The kernel tells of the last close of an open file behind the end of `close`.
#[test]
fn o11_who_has_closed_a_file_keeps_nobody_from_its_lock() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let program = r#"
import fcntl, os, sys
def held(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: os.close(fd); return None
    return fd
at = sys.argv[1:]
def rounds(of):
    refused = [0, 0]
    for i in range(400):
        fd = held(f'{at[i // 4 % 2]}/lock{of}')
        # What was closed in the other mount is waited for a little only.
        if fd is None: refused[i % 4 == 0] += 1
        else: os.close(fd)
    return 255 if refused[0] > 0 else refused[1]
# Not two at a time, though who opens a file can get the number of what was just closed.
def alone(of):
    failed = 0
    for i in range(200):
        fd = os.open(at[0] + '/one', os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try: os.close(os.open(sys.argv[0] + '.in', os.O_CREAT | os.O_EXCL)); os.unlink(sys.argv[0] + '.in')
        except FileExistsError: failed += 1
        os.close(fd)
    return failed
def all_of(what):
    children = []
    for of in range(4):
        child = os.fork()
        if child == 0: os._exit(min(what(of), 255))
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
said = all_of(rounds)
assert sum(said) <= 10, said
assert all_of(alone) == [0] * 4
# Another descriptor of the same open file keeps it.
fd = held(at[0] + '/kept'); other = os.dup(fd); os.close(fd)
assert [held(there + '/kept') for there in at] == [None, None]
os.close(other)
assert held(at[0] + '/kept') is not None
"#;
    std::fs::write(store.path("closed.py"), program).unwrap();
    for options in ["", "io_uring=off"] {
        let (here, there) = (Mounted::new(&store, "here", options), Mounted::new(&store, "there", options));
        here.shell(&format!("python3 $AT/../closed.py . {}", there.path("").display())).ok();
    }
}

#[test]
fn x1_what_is_held_exclusively_is_passed_to_children() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
/bin/echo hi > f; cat f; { echo a; /bin/echo b; } > g; cat g; cat < g > h; cat h; (echo sub; /bin/echo sub2) >> h; cat h
exec 3<> h; cat <&3; sh -c '/bin/echo 3; true' >&3; exec 3>&-; cat h
sh -c '/bin/echo 1; echo 2; /bin/echo 3; (echo 4; /bin/echo 5); bash -c "echo 6; /bin/echo 7"' > i; cat i
exec 3> j; (sleep 0.3; echo late >&3; /bin/echo later >&3) & exec 3>&-; wait; cat j
python3 -c "
import os, subprocess
f = open('p', 'w+'); f.write('first\n'); f.flush(); subprocess.run(['echo', 'second'], stdout=f)
print(os.fstat(f.fileno()).st_size); f.write('third\n'); f.flush(); f.seek(0); print(f.read()); f.close(); print(open('p').read())
# A shell that has files of its own, and what it starts in turn.
a = open('q', 'a'); a.write('1\n'); a.flush()
for child in [subprocess.Popen(['sh', '-c', 'echo o > own\$1; for i in 1 2 3 4 5; do /bin/echo x\$i; done', 'sh', str(i)], stdout=a) for i in range(2)]: child.wait()
a.write('2\n'); a.close(); print(sorted(open('q').read().split()))
f = open('s', 'w'); child = subprocess.Popen(['sh', '-c', 'sleep 0.3; echo hi; /bin/echo ho'], stdout=f); f.close(); child.wait(); print(open('s').read())
print(subprocess.run(['sh', '-c', 'read a; cat'], stdin=open('p'), capture_output=True).stdout)
"
"#;
    std::fs::create_dir(store.path("here")).unwrap();
    let outside = Command::new("sh").args(["-c", script]).current_dir(store.path("here")).output().unwrap();
    let expected = String::from_utf8(outside.stdout).unwrap();
    assert!(expected.ends_with("b'second\\nthird\\n'\n"), "{expected}");
    for rule in ["/**=scratch", "/**=concurrency=exclusive,consistency=sequential"] {
        let inside = run(&store, &["--rule", rule, "--", "sh", "-c", &format!("cd /iov/w; rm -rf *; {script}")]);
        assert_eq!(inside.ok().text(), expected, "{rule}");
    }
}
