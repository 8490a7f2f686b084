//! Programs in `iov run`: workspaces without a mount.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::{
    mounts::{Mounted, has_fuse},
    programs::{self, Door},
    store::{Ran, Store, finished, profile, until},
};

/// The library that is loaded into programs lies beside the program. Cargo builds it only where somebody asks for it.
pub(crate) fn has_library() -> bool {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "iov-preload", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
        build.args(profile(Path::new(env!("CARGO_BIN_EXE_iov"))));
        assert!(build.status().unwrap().success(), "the library could not be built");
    });
    let here = cfg!(all(target_arch = "x86_64", target_env = "gnu"));
    if !here {
        eprintln!("nothing can be loaded into programs here");
    }
    here
}

/// `iov run` with these arguments.
pub(crate) fn run(store: &Store, args: &[&str]) -> Ran {
    let mut command = store.command(&[&["run"], args].concat());
    command.stdin(Stdio::null());
    finished(command.spawn().unwrap(), 300)
}

/// A script in the workspace, which ends with its first failure.
pub(crate) fn shell(store: &Store, script: &str) -> Ran {
    run(store, &["--", "bash", "-euo", "pipefail", "-c", &format!("cd /iov/w\n{script}")])
}

#[test]
fn programs_work_in_iov_run() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    programs::run_all(Door::Run, &|script| shell(&store, script));
    // What the tools of the store say of the same.
    assert!(store.iov(&["cat", "w/src/deep/er/hard"]).ok().text().contains("int main(void)"));
    store.iov(&["ls", "w/src/deep"]).ok();
}

#[test]
fn a_shell_is_told_once_for_all_that_it_starts() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let iov = env!("CARGO_BIN_EXE_iov");
    // A quote in a path means nothing to the shell, and what was loaded before stays so.
    let script = format!(
        "export LD_PRELOAD=libm.so.6\n\
         eval \"$('{iov}' run --env --at \"w=/it's here\" -c consistency=commit)\"\n\
         before=$LD_PRELOAD\n\
         eval \"$('{iov}' run --env --at \"w=/it's here\" -c consistency=commit)\"\n\
         test \"$before\" = \"$LD_PRELOAD\" && case $before in */libiov_preload.so:libm.so.6) ;; *) exit 9 ;; esac\n\
         sh -c 'echo told > \"/it'\"'\"'s here/file\"'\n\
         cat \"/it's here/file\"\n\
         unset LD_PRELOAD IOVERBS_RUN\n\
         test ! -e \"/it's here\""
    );
    let like = store.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-euc", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_eq!(finished(command.spawn().unwrap(), 60).ok().text(), "told\n");
    assert!(store.iov(&["stat", "w/file"]).ok().text().contains("consistency=commit"));
    store.iov(&["run", "--env", "ls"]).fails(64, &["--env"]);
    store.iov(&["run"]).fails(64, &[]);
}

#[test]
#[ignore = "takes minutes; make test-long installs the programs"]
fn heavy_programs_work_in_iov_run() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    programs::run_heavy(Door::Run, &|script| shell(&store, script));
}

#[test]
fn workspaces_appear_where_they_are_asked_for() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["ws", "create", "v"]).ok();
    // All of them.
    assert_eq!(run(&store, &["ls", "/iov"]).ok().text(), "v\nw\n");
    shell(&store, "echo one > f; cp f ../v/g; cd ..; pwd; cat v/g; ls .. > /dev/null; cd /; cat iov/w/f").ok();
    assert_eq!(store.cat("v/g"), b"one\n");
    // `iov ws` makes them.
    shell(&store, "! mkdir ../u 2> /dev/null; ! rmdir ../v 2> /dev/null; test -d ../v").ok();
    // Some, at a path that need not exist, also one that begins elsewhere.
    let at = store.path("data");
    let place = format!("w={}/", at.display());
    let said = run(&store, &["--at", &place, "sh", "-c", "cat data/f; cd data && pwd; test ! -e /iov"]).ok().text();
    assert_eq!(said, format!("one\n{}\n", at.display()));
    run(&store, &["--at", "w=/x/y", "--at", "v=/x/z", "sh", "-c", "cmp /x/y/f /x/z/g && ls /x/y/../z/g"]).ok();
    // A symbolic link may lead from one to the other, and out.
    let text = shell(&store, "ln -s /iov/v/g a; ln -s /etc/hostname b; ln -s ../v/g c; cat a c; cmp b /etc/hostname");
    assert_eq!(text.ok().text(), "one\none\n");
    // What is asked for wrongly is told.
    run(&store, &["--at", "w", "true"]).fails(64, &["--at w", "WORKSPACE=DIR"]);
    run(&store, &["--at", "nobody=/x", "true"]).fails(66, &["nobody"]);
    run(&store, &["--at", "w=/x", "--at", "v=/x/y", "true"]).fails(64, &["in the directory of another"]);
    run(&store, &["-o", "what", "true"]).fails(64, &["strict"]);
    run(&store, &["no-such-program"]).fails(66, &["no-such-program"]);
    // The code of the program is that of the command.
    assert_eq!(run(&store, &["sh", "-c", "exit 7"]).code, Some(7));
}

#[test]
fn descriptors_pass_to_children() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Both write at the one offset that they share, whoever does so in turn.
    shell(&store, "{ echo a; /bin/echo b; echo c; (echo d; /bin/echo e); } > out; { read x; cat; } < out > rest").ok();
    assert_eq!(store.cat("w/out"), b"a\nb\nc\nd\ne\n");
    assert_eq!(store.cat("w/rest"), b"b\nc\nd\ne\n");
    // Also where the C library starts the child, and where a program is started anew without its variables.
    let script = "import os, subprocess, sys
with open('spawned', 'w') as f:
    pid = os.posix_spawn('/bin/echo', ['echo', 'x'], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, f.fileno(), 1)])
    assert os.waitpid(pid, 0)[1] == 0
    os.posix_spawn('/bin/echo', ['echo', 'z'], os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, '/iov/w/opened', os.O_WRONLY | os.O_CREAT, 0o644)])
    os.wait()
    os.system('echo y >&%d' % os.dup2(f.fileno(), 9, inheritable=True))
subprocess.run(['env', '-i', '/bin/sh', '-c', 'echo clean >> spawned; pwd'], check=True)
r = os.open('spawned', os.O_RDONLY); os.lseek(r, 2, 0)
print(subprocess.run(['cat'], stdin=r, capture_output=True).stdout)
print(os.read(r, 10), os.lseek(r, 0, 1), os.readlink('/proc/self/fd/%d' % r))";
    store.file("spawn.py", script.as_bytes());
    let said = shell(&store, &format!("python3 {}", store.path("spawn.py").display())).ok().text();
    assert_eq!(said, "/iov/w\nb'y\\nclean\\n'\nb'' 10 /iov/w/spawned\n");
    assert_eq!(store.cat("w/opened"), b"z\n");
    // By the names that the system has for descriptors, too.
    let said =
        shell(&store, "cat /dev/stdin < out; cat /proc/self/fd/0 < rest; echo f > /dev/fd/3; stat -c %s /dev/fd/3")
            .code;
    assert_eq!(said, Some(1), "there is no such descriptor");
    let said = shell(
        &store,
        "exec 3> three; cat /dev/stdin < rest; echo f > /dev/fd/3; stat -L -c %s /dev/fd/3; readlink /proc/self/fd/3",
    );
    assert_eq!(said.ok().text(), "b\nc\nd\ne\n2\n/iov/w/three\n");
    // Each of several processes appends, and nothing is lost.
    shell(&store, "for p in 1 2 3; do (for i in $(seq 50); do echo $p-$i >> log; done) & done; wait").ok();
    assert_eq!(store.cat("w/log").iter().filter(|b| **b == b'\n').count(), 150);
    // A file that has no name any more is still that file.
    shell(&store, "exec 3<>gone; rm gone; echo x >&3; ! test -e gone; echo y >&3; exec 3>&-").ok();
}

#[test]
fn a_program_outlives_the_daemon() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let pid = store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].to_string();
    let script = format!(
        "import os, signal
f = open('before', 'w'); f.write('x' * 300000); f.flush()
g = os.open('open', os.O_RDWR | os.O_CREAT); os.write(g, b'one ')
small = open('small', 'w'); small.write('tiny'); small.flush()
os.kill({pid}, signal.SIGKILL)
small.close(); assert open('small').read() == 'tiny'; os.unlink('small')
os.write(g, b'two'); f.write('y'); f.close()
open('after', 'w').write('z')
print(os.pread(g, 10, 0), sorted(os.listdir('.')), os.path.getsize('before'))"
    );
    store.file("kill.py", script.as_bytes());
    let said = shell(&store, &format!("python3 {}", store.path("kill.py").display())).ok().text();
    assert_eq!(said, "b'one two' ['after', 'before', 'open'] 300001\n");
    assert_eq!((store.cat("w/open"), store.cat("w/after")), (b"one two".to_vec(), b"z".to_vec()));
}

#[test]
fn programs_of_a_workspace_run() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let said = shell(
        &store,
        "printf '#!/bin/sh -e\\necho $0 $1\\n' > script; chmod +x script; ./script a; PATH=/iov/w:$PATH script b
         cp /bin/echo mine; ./mine c; env ./mine d; printf '#!/iov/w/script x\\n' > more; chmod +x more; ./more
         chmod -x script; ./script 2>/dev/null || echo refused",
    );
    assert_eq!(said.ok().text(), "./script a\n/iov/w/script b\nc\nd\n/iov/w/script x\nrefused\n");
    // So do libraries that are loaded from there, each once.
    let load = "import ctypes
a, b = ctypes.CDLL('/iov/w/lib.so'), ctypes.CDLL('/iov/w/lib.so')
print(a.count(), b.count(), ctypes.CDLL('libm.so.6').abs(-3))";
    store.file("load.py", load.as_bytes());
    let load = store.path("load.py");
    let script = format!(
        "echo 'int n; int count(void) {{ return ++n; }}' > lib.c; cc -shared -fPIC -o lib.so lib.c; python3 {}",
        load.display()
    );
    assert_eq!(shell(&store, &script).ok().text(), "1 2 3\n");
}

#[test]
fn what_cannot_see_the_store_is_told() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let c = "int main(int n, char **a) { return n > 1 ? 3 : 4; }";
    let source = store.file("static.c", c.as_bytes());
    let program = store.path("static");
    let built = Command::new("cc").args(["-static", "-o", program.to_str().unwrap(), &source]).status().unwrap();
    assert!(built.success());
    let program = program.to_str().unwrap();
    run(&store, &[program]).fails(69, &["static program", "iov mount"]);
    // One that a script starts runs as long as it is given nothing of the store.
    assert_eq!(run(&store, &["sh", "-c", &format!("{program} x")]).code, Some(3));
    for script in [format!("{program} /iov/w/f"), format!("{program} --out=/iov/w/f"), format!("cd /iov/w; {program}")]
    {
        let ran = run(&store, &["sh", "-c", &script]);
        assert_eq!(ran.code, Some(126), "{script}");
        assert!(ran.err.contains("static program"), "{}", ran.err);
    }
    // Nor is anything loaded into one that runs as somebody else.
    if rustix::process::geteuid().is_root() {
        let theirs = store.path("theirs");
        std::fs::copy("/bin/ls", &theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let ran = run(&store, &["sh", "-c", &format!("cd /iov/w; {}", theirs.display())]);
        assert_eq!(ran.code, Some(126));
        assert!(ran.err.contains("another user"), "{}", ran.err);
    }
    // Sockets are made by the kernel, which knows nothing of the directory that the program is in.
    let bind = "import os, socket, sys
os.chdir('/iov/w')
for name in ('rel', '/iov/w/abs'):
    try: socket.socket(socket.AF_UNIX).bind(name); print('made')
    except PermissionError: pass
os.symlink(sys.argv[1], 'out'); socket.socket(socket.AF_UNIX).bind('out/through'); os.unlink('out')
os.chdir(sys.argv[1]); os.stat('through'); socket.socket(socket.AF_UNIX).bind('there'); socket.socket(socket.AF_UNIX).bind(chr(0) + sys.argv[1])
print(os.listdir('/iov/w'), os.path.exists('there'))";
    let here = store.path("here");
    std::fs::create_dir(&here).unwrap();
    let ran = run(&store, &["python3", "-c", bind, here.to_str().unwrap()]).ok();
    assert_eq!(ran.text(), "[] True\n");
    // A mapping that others are to see needs a mount.
    let map = "import mmap, os
f = os.open('/iov/w/m', os.O_RDWR | os.O_CREAT); os.write(f, b'abc')
m = mmap.mmap(f, 3, flags=mmap.MAP_PRIVATE); m[0:1] = b'x'; assert m[:] == b'xbc' and os.pread(f, 3, 0) == b'abc'
try: mmap.mmap(f, 3); print('mapped')
except OSError as e: print(e.errno)";
    assert_eq!(run(&store, &["python3", "-c", map]).ok().text(), "19\n");
}

#[test]
fn what_was_written_is_there_when_a_program_ends() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // However it ends by itself, without closing anything.
    for (n, end) in ["exit(3)", "_exit(3)", "return 3", "quick_exit(3)"].iter().enumerate() {
        let c = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <fcntl.h>\n#include <string.h>\n\
             int main(void) {{ char big[200000]; memset(big, 'x', sizeof big);\n\
             int f = open(\"/iov/w/end{n}\", O_CREAT | O_WRONLY, 0600); write(f, big, sizeof big);\n\
             FILE *s = fopen(\"/iov/w/stream{n}\", \"w\"); fprintf(s, \"%d\", 12345); fflush(s); {end}; }}"
        );
        let source = store.file("end.c", c.as_bytes());
        let program = store.path("end");
        assert!(Command::new("cc").args(["-w", "-o", program.to_str().unwrap(), &source]).status().unwrap().success());
        assert_eq!(run(&store, &[program.to_str().unwrap()]).code, Some(3));
        assert_eq!(store.cat(&format!("w/end{n}")).len(), 200_000, "{end}");
        assert_eq!(store.cat(&format!("w/stream{n}")), b"12345", "{end}");
    }
}

/// A program in Python, in the workspace.
pub(crate) fn python(store: &Store, program: &str) -> Ran {
    store.file("program.py", program.as_bytes());
    shell(store, &format!("python3 {}", store.path("program.py").display()))
}

#[test]
fn descriptors_of_the_store_are_out_of_the_way_of_those_of_programs() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import os
f = os.open('a', os.O_RDWR | os.O_CREAT); os.write(f, b'x' * 200000)
log = os.open('/dev/null', os.O_WRONLY)
high = os.dup2(f, 400)
for n in range(3, 300): os.dup2(log, n)
os.write(high, b'y' * 200000); assert os.fstat(high).st_size == 400000
os.closerange(3, 400)
os.write(high, b'z'); assert os.pread(high, 3, 399999) == b'yz'
for n in range(3, 5000):
    try: os.close(n)
    except OSError: pass
assert os.open('a', os.O_RDONLY) == 3 and os.read(3, 2) == b'xx'
open('b', 'w').write('after')
print(os.path.getsize('a'), sorted(os.listdir('.')))";
    assert_eq!(python(&store, program).ok().text(), "400001 ['a', 'b']\n");
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_always_there() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "strict");
    std::fs::write(m.path("cur"), "x").unwrap();
    let program = "import os, time\nend = time.monotonic() + 4\nwhile time.monotonic() < end:\n  \
                   os.close(os.open('/iov/w/new', os.O_CREAT | os.O_WRONLY)); os.rename('/iov/w/new', '/iov/w/cur')";
    let mut writer = store.command(&["run", "--", "python3", "-c", program]).spawn().unwrap();
    while writer.try_wait().unwrap().is_none() {
        std::fs::metadata(m.path("cur")).unwrap();
    }
    assert!(writer.wait().unwrap().success());
}

#[test]
fn parents_see_what_their_children_did() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // In a file that both have, and with names.
    shell(&store, "exec 3>out; /bin/echo x >&3; [ -s out ]; stat -c %s out").ok();
    shell(&store, "mkdir d; [ -e d ]; rm -r d; mkdir d; echo y > d/log; test -s d/log").ok();
    let program = "import os, subprocess
with open('new', 'w') as f:
    os.fchmod(f.fileno(), 0o640)
    subprocess.run(['sh', '-c', 'echo a; stat -c %a new'], stdout=f, check=True)
    assert os.path.getsize('new') == 6 and os.fstat(f.fileno()).st_size == 6
print(open('new').read().split())";
    assert_eq!(python(&store, program).ok().text(), "['a', '640']\n");
    // The directory of a process is that one, wherever it is moved, and never another.
    let script = "mkdir here; cd here; mv ../here ../there; mkdir /iov/w/here; /bin/echo z > f; cat f; ls; rm -r /iov/w/there; \
                  ! touch g 2>/dev/null; ! cat f 2>/dev/null; echo end";
    assert_eq!(shell(&store, script).ok().text(), "z\nf\nend\n");
    assert_eq!(store.iov(&["ls", "w/here"]).ok().text(), "");
}

#[test]
fn what_is_open_is_found_by_its_descriptor_whatever_its_name() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import os
f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, b'unnamed')
link = '/proc/self/fd/%d' % f
assert os.stat(link).st_size == 7 and os.listdir('.') == []
again = os.open(link, os.O_RDONLY); assert os.read(again, 9) == b'unnamed'
here = os.open('.', os.O_RDONLY)
os.link(link, 'named', dst_dir_fd=here, follow_symlinks=True); assert open('named').read() == 'unnamed'
os.rename('named', 'moved'); open('named', 'w').write('another')
g = os.open('moved', os.O_RDONLY); os.rename('moved', 'gone')
with open('moved', 'w') as other: other.write('other')
print(open('/dev/fd/%d' % g).read(), os.preadv(g, [bytearray(3), bytearray(9)], 0))";
    assert_eq!(python(&store, program).ok().text(), "unnamed 7\n");
}

#[test]
fn what_fails_late_is_told() {
    if !has_library() {
        return;
    }
    let store = Store::new();
    store.iov(&["ws", "create", "w", "--quota", "100KB"]).ok();
    // Also where a child was started before anybody else heard of it.
    let program = "import errno, os, subprocess
os.write(os.open('a', os.O_WRONLY | os.O_CREAT), b'x' * 90000)
f = os.open('b', os.O_WRONLY | os.O_CREAT); os.write(f, b'x' * 20000)
subprocess.run(['true'], close_fds=False)
try: os.close(f); print('closed')
except OSError as e: print(errno.errorcode[e.errno])";
    assert_eq!(python(&store, program).ok().text(), "EDQUOT\n");
}

#[test]
fn who_waits_for_a_lock_hears_signals() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import fcntl, os, signal
f = open('lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)
class Late(Exception): pass
def late(*_): raise Late
if os.fork() == 0:
    signal.signal(signal.SIGALRM, late); signal.setitimer(signal.ITIMER_REAL, 0.2)
    g = open('lock', 'r+')
    try: fcntl.lockf(g, fcntl.LOCK_EX); print('got', flush=True)
    except Late: print('late', flush=True)
    os._exit(0)
os.wait(); print('done')";
    assert_eq!(python(&store, program).ok().text(), "late\ndone\n");
}

#[test]
fn paths_lead_out_and_links_are_not_followed_where_names_are_meant() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let out = store.path("out");
    std::fs::create_dir(&out).unwrap();
    let script = format!(
        "ln -s {} o; echo a > o/a; mv o/a o/b; ln o/b o/c; cmp o/b {}/c; mv o/c .; cat c
         mkdir e; ln -s e l; ! rmdir l/ 2>/dev/null; test -d e; ! mv l/ m 2>/dev/null; test -d l/; ln -s no n; ! mkdir n/ 2>/dev/null; ! test -e no",
        out.display(),
        out.display()
    );
    assert_eq!(shell(&store, &script).ok().text(), "a\n");
    assert!(out.join("b").exists() && !out.join("a").exists());
}

#[test]
fn locks_hold_for_mounts_and_for_programs_in_iov_run() {
    if !has_library() || !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    shell(&store, "touch lock").ok();
    // Each kind, on each side.
    for kind in ["flock", "lockf"] {
        let take =
            format!("import fcntl, sys\nf = open(sys.argv[1], 'r+'); fcntl.{kind}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)");
        let take = store.file("take.py", take.as_bytes());
        let hold = format!("{}\nprint('held', flush=True); sys.stdin.read()", std::fs::read_to_string(&take).unwrap());
        let hold = store.file("hold.py", hold.as_bytes());
        let mounted = m.path("lock").to_str().unwrap().to_owned();
        let by_mount = |program: &str| {
            let mut command = Command::new("python3");
            command.args([program, &mounted]);
            command
        };
        let by_run = |program: &str| store.command(&["run", "--", "python3", program, "/iov/w/lock"]);
        for (mut holder, mut other) in [(by_mount(&hold), by_run(&take)), (by_run(&hold), by_mount(&take))] {
            let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "held\n");
            let mut taken = || other.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success();
            assert!(!taken(), "{kind}: both have it");
            drop(holder.stdin.take());
            assert!(holder.wait().unwrap().success());
            until("it is free", &mut taken);
        }
    }
}
