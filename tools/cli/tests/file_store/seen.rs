//! What processes in `iov run` see of what others do beside them, without a lock and without waiting for a child's end.

use crate::{
    runs::{has_library, python},
    store::Store,
};

/// A parent that looks and a child that changes, in turn: nothing that was found before hides what the child has done.
const IN_TURN: &str = r#"
import os
os.chdir("/iov/w")
(ask, asked), (tell, told) = [os.pipe()[::-1] for _ in range(2)]
OLD = 10**18
def size(): return os.stat("d/f").st_size
def times(): return os.stat("d").st_mtime_ns == OLD
def put(name, data=b"x"):
    with open(name, "wb") as f: f.write(data)
# What is looked at, before and behind, and what is done meanwhile.
turns = [
    (times, True, False, lambda: put("d/new")),
    (times, True, False, lambda: os.rename("d/new", "d/newer")),
    (times, True, False, lambda: os.mkdir("d/e")),
    (times, True, False, lambda: os.unlink("d/newer")),
    (times, True, False, lambda: os.rmdir("d/e")),
    (size, 3, 5, lambda: put("d/f", b"12345")),
    (size, 5, 2, lambda: os.truncate("d/f", 2)),
    (lambda: os.stat("d/f").st_mode & 0o777, 0o644, 0o600, lambda: os.chmod("d/f", 0o600)),
    (lambda: os.path.exists("d/later"), False, True, lambda: put("d/later")),
    (lambda: os.path.exists("d/later"), True, False, lambda: os.unlink("d/later")),
    (lambda: open("d/f", "rb").read(), b"12", b"another", lambda: (put("d/t", b"another"), os.rename("d/t", "d/f"))),
    (lambda: os.path.isdir("g"), True, False, lambda: os.rename("g", "h")),
    (lambda: os.path.isdir("h"), True, True, lambda: (os.rmdir("h"), os.mkdir("h"))),
    (lambda: sorted(os.listdir("h")), [], ["in"], lambda: (os.rmdir("h"), os.mkdir("h"), put("h/in"))),
    (lambda: os.listdir("l") and os.path.exists("l/x"), True, False, lambda: os.rename("l/x", "l/y")),
    (lambda: os.path.exists("made/a"), False, True, lambda: put("made/a")),
    (lambda: (put("made/own"), os.path.exists("made/b"))[1], False, True, lambda: put("made/b")),
]
os.umask(0o022)
for name in "dgl": os.mkdir(name)
put("d/f", b"123"); put("l/x")
child = os.fork()
if child == 0:
    os.close(ask)
    for _, _, _, work in turns:
        # Nothing: the parent has ended.
        if not os.read(asked, 1): break
        work(); os.write(tell, b"x")
    os._exit(0)
os.close(tell)
os.mkdir("made")
wrong = []
for i, (look, before, behind, _) in enumerate(turns):
    os.utime("d", ns=(OLD, OLD))
    for _ in range(3): assert look() == before, (i, look(), before)
    os.write(ask, b"x"); os.read(told, 1)
    if look() != behind: wrong.append(i)
assert not wrong, wrong
assert os.waitpid(child, 0)[1] == 0
"#;

#[test]
fn c7_what_others_do_is_seen_behind_it() {
    if !has_library() {
        return;
    }
    python(&Store::with_workspace(), IN_TURN).ok();
}

#[test]
fn rsync_gives_directories_their_times_though_three_processes_fill_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = r#"
import os, subprocess
source = os.environ["SOURCE"] + "/"
os.makedirs(source)
for i in range(40):
    os.mkdir(source + f"d{i}")
    for j in range(3):
        with open(source + f"d{i}/f{j}", "wb") as f: f.write(b"x" * (i * j * 300))
    os.utime(source + f"d{i}", (1000, 1000 + i))
subprocess.run(["rsync", "-a", source, "/iov/w/copy/"], check=True)
left = subprocess.run(["rsync", "-ain", source, "/iov/w/copy/"], check=True, capture_output=True, text=True).stdout
assert left == "", left
"#;
    let named = format!("import os\nos.environ[\"SOURCE\"] = {:?}\n", store.path("source").to_str().unwrap());
    python(&store, &(named + program)).ok();
}
