//! How often programs in `iov run` ask the store, which is most of what their calls cost.

use crate::{
    runs::{has_library, python},
    store::Store,
};

/// Tells how many requests the daemon was sent so far.
pub(crate) const REQUESTS: &str = r#"
import os, subprocess
bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
def requests():
    told = subprocess.run([os.environ["IOV"], "status"], env=bare, capture_output=True, text=True, check=True).stdout
    return int(next(line.split()[-1] for line in told.splitlines() if line.startswith("requests")))
"#;

/// Does each several times, and tells how many requests that were for one, rounded.
const COUNTED: &str = r#"
os.chdir("/iov/w")
def write(name, mode):
    with open(name, mode) as f: f.write(b"x" * 3000)
def look(name):
    with open(name, "rb") as f:
        for _ in range(9): assert os.fstat(f.fileno()).st_size == 3000
N = 40
def count(name, work):
    work(0)
    first = requests(); asking = requests() - first
    before = requests()
    for i in range(1, N): work(i)
    print(name, round((requests() - before - asking) / (N - 1), 1))
count("make", lambda i: write(f"f{i}", "wb"))
count("anew", lambda i: write(f"f{i}", "wb"))
count("over", lambda i: write(f"f{i}", "r+b"))
count("look", lambda i: look(f"f{i}"))
count("chmod", lambda i: os.chmod(f"f{i}", 0o600))
count("getxattr", lambda i: os.listxattr(f"f{i}"))
for i in range(N): os.symlink("f0", f"l{i}")
count("readlink", lambda i: os.readlink(f"l{i}"))
count("unlink", lambda i: os.unlink(f"f{i}"))
"#;

#[test]
fn what_is_known_is_not_asked_for() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let iov = format!("import os\nos.environ[\"IOV\"] = {:?}\n", env!("CARGO_BIN_EXE_iov"));
    let said = python(&store, &(iov + REQUESTS + COUNTED)).ok().text();
    // With the closes that nobody waits for. A lease that is renewed meanwhile is one more, of forty.
    let most = [
        ("make", 2.1),
        ("anew", 4.1),
        ("over", 3.1),
        ("look", 2.1),
        ("chmod", 2.1),
        ("getxattr", 2.1),
        ("readlink", 3.1),
        ("unlink", 1.1),
    ];
    for (line, (name, most)) in said.lines().zip(most) {
        let (of, count) = line.split_once(' ').unwrap();
        let count: f64 = count.parse().unwrap();
        assert!(of == name && count <= most, "{name}: {count} requests, not {most}:\n{said}");
    }
    assert_eq!(said.lines().count(), most.len());
}
