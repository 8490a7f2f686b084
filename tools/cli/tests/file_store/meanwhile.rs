//! What others do while a program is in the middle of something: nobody's bytes go elsewhere, or are lost.

use std::time::Duration;

use crate::{
    mounts::{Mounted, has_fuse, kill},
    runs::{has_library, python},
    store::Store,
};

fn in_mount(store: &Store, m: &Mounted<'_>, script: &str) -> String {
    store.file("meanwhile.py", script.as_bytes());
    m.shell(&format!("python3 {}", store.path("meanwhile.py").display())).ok().text()
}

#[test]
fn a_name_is_not_listed_as_what_it_stood_for_before() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    // The kernel asks for more names than it hands on at a time, and for some of them only later.
    let script = r#"
import os
os.mkdir('d')
for i in range(1200): open(f'd/{i:04}-{"x" * 100}', 'w').close()
with os.scandir('d') as listing:
    # Who looks at what is listed is told of it with the names, as `ls -l` is.
    names = [(next(listing).name, os.stat('d'))[0] for _ in range(300)]
    for name in names: os.stat(f'd/{name}')
    # Whatever was not handed on yet.
    late = [p for p in (f'd/{i:04}-{"x" * 100}' for i in range(1200)) if os.path.basename(p) not in names][-400:]
    for p in late: open(p, 'w').write('log'); os.rename(p, p + '.1')
    for e in listing:
        names.append(e.name)
        if len(names) % 10 == 0 and 'd/' + e.name not in late: os.stat('d/' + e.name)
wrong = 0
for p in late:
    if os.path.exists(p): wrong += 1
    try: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)); open(p, 'w').write('new')
    except FileExistsError: wrong += 1
kept = sum(open(p + '.1').read() == 'log' for p in late)
print(len(names) >= 800, wrong, kept)
"#;
    assert_eq!(in_mount(&store, &m, script), "True 0 400\n");
}

#[test]
fn what_was_changed_by_a_mapping_does_not_come_back_behind_a_cut() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    let script = format!(
        r#"
import mmap, os
for i in range(20):
    open('f', 'wb').write(b'.' * 50000)
    fd = os.open('f', os.O_RDWR)
    shared = mmap.mmap(fd, 50000)
    # Another mount may write it: this one cannot know all that becomes of it.
    other = os.open({:?}, os.O_RDWR); os.close(other)
    shared[:] = b'm' * 50000
    cut = os.open('f', os.O_WRONLY | os.O_TRUNC); os.write(cut, b'hi'); os.close(cut)
    left = open('f', 'rb').read()
    assert left == b'hi', (i, len(left), left[:9])
    shared.close(); os.close(fd)
    left = open('f', 'rb').read()
    assert left == b'hi', (i, len(left), left[:9], 'behind it')
print('good')
"#,
        b.path("f")
    );
    assert_eq!(in_mount(&store, &a, &script), "good\n");
}

#[test]
fn a_file_that_another_mount_has_removed_is_cut_by_who_has_it_open() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    let script = format!(
        r#"
import os
open('f', 'w').write('some bytes')
assert open('f').read() == 'some bytes'
fd = os.open('f', os.O_RDWR)
os.remove({:?})
os.ftruncate(fd, 4)
print(os.pread(fd, 99, 0))
"#,
        b.path("f")
    );
    assert_eq!(in_mount(&store, &a, &script), "b'some'\n");
}

#[test]
fn a_file_without_a_name_that_a_child_names_stays() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import os, subprocess, sys
if len(sys.argv) > 1:
    here = os.open('.', os.O_RDONLY)
    os.link('/proc/self/fd/' + sys.argv[1], sys.argv[2], dst_dir_fd=here, follow_symlinks=True); sys.exit()
for name in ['first', 'second']:
    f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, name.encode())
    subprocess.run([sys.executable, sys.argv[0], str(f), name], pass_fds=[f], check=True)
    # One is closed by this process, and one ends with it.
    if name == 'first': os.close(f)
print(open('first').read())";
    assert_eq!(python(&store, program).ok().text(), "first\n");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(store.iov(&["ls", "w"]).ok().text(), "first\nsecond\n");
    assert_eq!(store.iov(&["get", "w/second", "-"]).ok().text(), "second");
}

#[test]
fn what_a_store_did_not_answer_in_time_is_not_lost_for_who_has_it_open() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", &["--timeout", "5s"]);
    let pid = store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].as_u64().unwrap() as u32;
    let script = format!(
        r#"
import errno, os, signal, subprocess, time
fd = os.open('f', os.O_RDWR | os.O_CREAT); os.write(fd, b'x' * 1000)
os.kill({pid}, signal.SIGSTOP)
try: os.fsync(fd); print('synced')
except OSError as e: print(errno.errorcode[e.errno])
# What it was asked it never does; another one follows.
finally: os.kill({pid}, signal.SIGKILL)
time.sleep(1)
# A child that closes what it has inherited.
subprocess.run(['true'], close_fds=False)
print(len(os.pread(fd, 9999, 0)), os.fstat(fd).st_size)
os.fsync(fd); os.close(fd)
print(os.path.getsize('f'))
"#
    );
    assert_eq!(in_mount(&store, &m, &script), "EIO\n1000 1000\n1000\n");
}

/// Names that are made, linked, renamed and removed for some seconds; what failed, and how often it was done.
const NAMES: &str = r#"
import os, time
end, rounds, failed = time.time() + 6, 0, []
def do(what, *args, **how):
    try: return what(*args, **how)
    except OSError as e: failed.append((rounds, what.__name__, args, e.strerror))
while time.time() < end:
    rounds += 1
    do(os.symlink, 'target', f'l{rounds}')
    if do(os.readlink, f'l{rounds}') != 'target': failed.append((rounds, 'link'))
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(fd, b'0123456789')
    here = os.open('.', os.O_RDONLY)
    do(os.link, f'/proc/self/fd/{fd}', f't{rounds}', dst_dir_fd=here, follow_symlinks=True)
    os.close(here); do(os.close, fd); do(os.mkdir, f'd{rounds}')
    do(os.rename, f't{rounds}', f'l{rounds}')
    if do(os.path.getsize, f'l{rounds}') != 10: failed.append((rounds, 'renamed'))
    do(os.unlink, f'l{rounds}'); do(os.rmdir, f'd{rounds}')
print(rounds > 0, failed, os.listdir('.'))
"#;

/// Kills the daemon again and again, until the program has ended.
fn killed_meanwhile(store: &Store, program: impl FnOnce() -> String + Send) -> String {
    std::thread::scope(|scope| {
        let ran = scope.spawn(program);
        while !ran.is_finished() {
            std::thread::sleep(Duration::from_millis(400));
            let status = store.iov(&["status", "--json"]);
            // There may be none just now.
            if status.code == Some(0)
                && let Some(pid) = status.json()["daemon"]["pid"].as_u64()
            {
                kill(pid as u32, "KILL");
            }
        }
        ran.join().unwrap()
    })
}

#[test]
fn names_are_changed_once_although_the_daemon_is_killed_again_and_again() {
    let store = Store::with_workspace();
    if has_fuse() {
        let m = Mounted::new(&store, "mnt", "");
        assert_eq!(killed_meanwhile(&store, || in_mount(&store, &m, NAMES)), "True [] []\n");
    }
    if has_library() {
        assert_eq!(killed_meanwhile(&store, || python(&store, NAMES).ok().text()), "True [] []\n");
    }
}

/// Several processes that link a file of their own each to the same names, one after the other: who says that he made a name, and whose file it is.
const LINKS: &str = r#"
import os, time
end, wrong, children = time.time() + 6, [], []
for n in range(3): open(f'own{n}', 'w').close()
for n in range(3):
    r, w = os.pipe()
    if os.fork() == 0:
        i, made = 0, []
        while time.time() < end:
            try: os.link(f'own{n}', f'r{i}'); made.append(i)
            except FileExistsError: pass
            except OSError as e: made.append(e.strerror)
            i += 1; time.sleep(0.005)
        os.write(w, repr(made).encode() + b'\n'); os.close(w); os._exit(0)
    os.close(w); children.append(r)
made = [eval(open(r).read()) for r in children]
for name in os.listdir('.'):
    if name[0] != 'r': continue
    owners = [n for n in range(3) if os.path.samefile(f'own{n}', name)]
    makers = [n for n in range(3) if int(name[1:]) in made[n]]
    if owners != makers: wrong.append((name, owners, makers))
print(len(os.listdir('.')) > 10, wrong, [e for m in made for e in m if type(e) is str])
"#;

#[test]
fn who_makes_a_link_hears_that_although_the_daemon_is_killed_again_and_again() {
    let store = Store::with_workspace();
    if has_fuse() {
        let m = Mounted::new(&store, "mnt", "");
        assert_eq!(killed_meanwhile(&store, || in_mount(&store, &m, LINKS)), "True [] []\n");
    }
    if has_library() {
        let store = Store::with_workspace();
        assert_eq!(killed_meanwhile(&store, || python(&store, LINKS).ok().text()), "True [] []\n");
    }
}

/// Lists many names for some seconds; how many there were each time, and what failed.
const LISTS: &str = r#"
import os, time
for n in range(1500): open(f'f{n}', 'w').close()
end, counts, failed = time.time() + 5, set(), []
while time.time() < end:
    try: counts.add(len(os.listdir('.')))
    except OSError as e: failed.append(e.strerror)
print(counts, failed)
"#;

#[test]
fn a_listing_is_whole_although_the_daemon_is_killed_in_it() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    assert_eq!(killed_meanwhile(&store, || python(&store, LISTS).ok().text()), "{1500} []\n");
}

/// An attribute that a file has not says nothing of the file: who has it open goes on with it, and not with a copy.
const NO_KEY: &str = r#"
import os
def said(name):
    try: return os.getxattr(name, 'user.none')
    except OSError as e: return e.strerror
for n, ask in enumerate([said, lambda name: os.setxattr(name, 'user.t', b'1'), lambda name: os.listxattr(name)]):
    name = f'f{n}'
    open(name, 'w').write('hello'); open(name).read()
    fd = os.open(name, os.O_RDWR); ask(name)
    os.write(fd, b'HELLO'); os.fsync(fd)
    w = os.open(name, os.O_WRONLY | os.O_APPEND); os.write(w, b' more'); os.fsync(w); os.close(w); os.close(fd)
    print(open(name).read(), [key for key in os.listxattr(name) if not key.startswith('user.iov.')])
"#;

#[test]
fn a_file_that_lacks_an_attribute_is_not_taken_for_gone() {
    let expected = "HELLO more []\nHELLO more ['user.t']\nHELLO more []\n";
    if has_library() {
        assert_eq!(python(&Store::with_workspace(), NO_KEY).ok().text(), expected, "iov run");
    }
    if has_fuse() {
        let store = Store::with_workspace();
        let m = Mounted::new(&store, "mnt", "");
        assert_eq!(in_mount(&store, &m, NO_KEY), expected, "a mount");
    }
}

#[test]
fn a_pipe_or_a_directory_that_is_open_when_it_is_removed_stays_as_it_is() {
    let program =
        "mkfifo p; exec 3<>p; rm p; echo through >&3; head -1 <&3; chmod 600 /dev/fd/3; stat -Lc %a-%h-%F /dev/fd/3
mkdir d; exec 4<d; rmdir d; chmod 700 /dev/fd/4; touch -cd @1000 /dev/fd/4; stat -Lc %a-%h-%Y /dev/fd/4";
    let store = Store::with_workspace();
    if has_fuse() {
        let said = Mounted::new(&store, "mnt", "").shell(program).ok().text();
        assert_eq!(said, "through\n600-0-fifo\n700-0-1000\n");
    }
}
