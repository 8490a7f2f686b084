//! Access control lists through both doors: what `getfacl`, `setfacl` and other programs make of them is what they make of them in an ordinary directory.

use std::process::Command;

use crate::{
    calls::compiled,
    mounts::{Mounted, has_fuse},
    runs::{has_library, shell},
    store::Store,
};

/// Lists that are set, masked, inherited, copied and taken away, as seen by their owner.
const OWN: &str = r#"
set +e; umask 022; exec 2> /dev/null
lists() { find "$@" | LC_ALL=C sort | xargs getfacl -cnp; find "$@" -printf '%m %p\n' | LC_ALL=C sort; }
echo hello > f; chmod 640 f
setfacl -m u:4711:r,g:4712:rw f; lists f
chmod 600 f; lists f; chmod 660 f; lists f
mkdir d; setfacl -d -m u:4711:rwx,o::- d; lists d
umask 077
echo n > d/n; mkdir d/e; echo n > d/e/n; ln -s n d/l; mkfifo d/p; lists d
umask 022
cp -p f g; cp -a d d2; lists g d2
tar --acls -cf t.tar d f; mkdir x; tar --acls -xpf t.tar -C x; lists x
rsync -aA d2/ r/; lists r
mv f h; ln h i; lists h i
getfattr --absolute-names -m - -d -e hex h d
setfacl -b h; lists h
setfacl -k d; lists d
setfacl -x u:4711 d2/n; lists d2/n
setfacl -m m::r d2/n; lists d2/n
setfacl -d -m u:1:r g; echo $?
setfattr -n system.posix_acl_access -v 0x0100 g; echo $?
setfattr -x system.posix_acl_access g; echo $?; lists g
setfattr -x system.posix_acl_default g; echo $?
setfacl -d -m u:1:r .; echo n > last; mkdir lasts; lists last lasts
setfacl -k .; echo n > behind; getfacl -cn behind
"#;

/// What others may do by them.
const OTHERS: &str = r#"
set +e; umask 022; exec 2> /dev/null
as() { setpriv --reuid=$1 --regid=$2 --clear-groups "${@:3}"; echo "$1 $?"; }
chmod 755 .
echo hello > f; chmod 640 f; setfacl -m u:4711:r,g:4712:rw f
as 4711 4711 cat f; as 4713 4712 cat f; as 4714 4714 cat f; as 4713 4712 cp /dev/null f; as 4711 4711 cp /dev/null f
chmod 600 f; as 4711 4711 cat f; chmod 660 f; as 4711 4711 cat f
as 4711 4711 test -r f; as 4711 4711 test -w f; as 4711 4711 setfacl -m u:1:r f
mkdir d; setfacl -d -m u:4711:rwx,o::- d
umask 077; echo n > d/n; mkdir d/e; umask 022
as 4711 4711 cat d/n; as 4711 4711 cp d/n d/e/z; as 4712 4712 cat d/n
setfacl -m u:4711:rwx d; as 4711 4711 cp d/n d/e/z; as 4711 4711 rm d/n; stat -c '%a %u' d/e/z; ls d
echo s > s; chown 4711:4715 s; chmod 2755 s; as 4711 4711 setfacl -m u:1:r s; stat -c %a s
echo s > s; chown 4711:4711 s; chmod 2755 s; as 4711 4711 setfacl -m u:1:r s; stat -c %a s
mkdir -m 700 q; setfacl -m u:4711:x q; echo in > q/in; chmod 644 q/in
mkdir both; chown 4711:4715 both; chmod 2775 both; as 4711 4711 setfacl -d -m u:1:r both; stat -c %a both
echo s > t; chown 4711:4715 t; chmod 2755 t; as 4711 4711 setfattr -n system.posix_acl_access -v 0x0200000001 t; stat -c %a t
mkdir gone; (cd gone; rmdir ../gone; as 4711 4711 ls; as 4711 4711 cat nothing)
as 4711 4711 cat q/in; as 4711 4711 ls q; as 4712 4712 cat q/in; as 4711 4711 touch q/new
setfacl -m u:4711:rwx q; as 4711 4711 touch q/new; as 4711 4711 rm q/in; ls q
"#;

/// What a script says in an ordinary directory; `None`: its file system has no lists.
fn outside(store: &Store, script: &str) -> Option<String> {
    let plain = store.path("plain");
    std::fs::create_dir(&plain).unwrap();
    let run = |script: &str| Command::new("bash").args(["-c", script]).current_dir(&plain).output().unwrap();
    let has = run("setfacl -m u:1:r . && setfacl -b . && chmod 750 .").status;
    assert_ne!(has.code(), Some(127), "setfacl is not there: install the package acl");
    has.success().then(|| String::from_utf8(run(script).stdout).unwrap())
}

#[test]
fn in_a_mount_they_are_those_of_an_ordinary_directory() {
    let store = Store::with_workspace();
    let Some(expected) = outside(&store, OWN).filter(|_| has_fuse()) else { return };
    for options in ["ttl=30", "strict"] {
        let m = Mounted::new(&store, "mnt", options);
        let said = m.shell(&format!("chmod 750 .; {OWN}")).text();
        assert_eq!(said, expected, "{options}");
        m.shell("rm -rf *").ok();
    }
}

#[test]
fn in_iov_run_they_are_those_of_an_ordinary_directory() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let Some(expected) = outside(&store, OWN) else { return };
    assert_eq!(shell(&store, &format!("chmod 750 .; {OWN}")).text(), expected);
}

#[test]
fn they_say_what_others_may_do() {
    let store = Store::with_workspace();
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(expected) = outside(&store, OTHERS) else { return };
    let m = Mounted::new(&store, "mnt", "allow_other");
    assert_eq!(m.shell(OTHERS).text(), expected);
}

#[test]
fn the_view_of_metadata_is_open_to_who_may_use_the_mount() {
    let store = Store::with_workspace();
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let m = Mounted::new(&store, "mnt", "allow_other,tags");
    let script = r#"
        chmod 755 .; echo hello > f; setfattr -n user.colour -v red f
        setpriv --reuid=4711 --regid=4711 --clear-groups sh -c 'ls by/colour; cat by/colour/red/f'"#;
    assert_eq!(m.shell(script).ok().text(), "red\nhello\n");
}

#[test]
fn they_are_as_large_as_a_mount_can_have_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
        list() { echo "u::rw-"; for i in $(seq 1 $1); do echo "u:$i:r--"; done; echo "g::r--"; echo "m::r--"; echo "o::---"; }
        echo x > f; list 507 | setfacl -M - f; getfacl -cn f | grep -c user; ! list 508 | setfacl -M - f 2> /dev/null; getfacl -cn f | grep -c user:507"#;
    assert_eq!(shell(&store, script).ok().text(), "508\n1\n");
}

#[test]
fn in_iov_run_what_another_process_sets_is_seen_by_the_next_call() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = r#"
import os, subprocess
os.chdir('/iov/w'); os.mkdir('d'); open('f', 'w').close()
def has(name):
    try: return len(os.getxattr(name, 'system.posix_acl_access'))
    except OSError as e: return e.strerror
for name in ['f', 'd']:
    told = [has(name)]
    for what in ['-m', 'u:1:r'], ['-m', 'u:2:r'], ['-b']:
        os.listdir('d'); subprocess.run(['setfacl', *what, name], check=True); told.append(has(name))
    print(told)
"#;
    let expected = "['No data available', 44, 52, 'No data available']\n";
    assert_eq!(crate::runs::python(&store, program).ok().text(), expected.repeat(2));
}

#[test]
fn in_iov_run_they_say_what_a_process_may_do_that_becomes_somebody_else() {
    if !has_library() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    // 4711 may read, 4712 write; nobody else anything. The mask lets them.
    let lists = r#"
        umask 022; chmod 711 .; mkdir d; echo hello > d/f; setfacl -m u:4711:r,g:4712:w,g::-,o::- d/f; setfacl -m u:4711:x,o::- d; setfacl -d -m u:4711:rw,o::- d"#;
    shell(&store, lists).ok();
    let body = r#"
        static const char *as(int uid, int gid, const char *path, int how) {
            setegid(gid); seteuid(uid);
            int may = faccessat(AT_FDCWD, path, how & O_WRONLY ? W_OK : R_OK, AT_EACCESS), f = open(path, how, 0666); if (f >= 0) close(f);
            seteuid(0); setegid(0); if (!(how & O_CREAT) && (may < 0) != (f < 0)) return "?"; return f < 0 ? "no" : "yes";
        }
        MAIN
        chdir("/iov/w"); stat("d/f", &(struct stat){0}); setgroups(0, 0);
        printf("%s %s %s ", as(4711, 1, "d/f", O_RDONLY), as(4711, 1, "d/f", O_WRONLY), as(1, 4712, "d/f", O_WRONLY));
        chmod("d", 0711); printf("%s %s %s ", as(1, 4712, "d/f", O_WRONLY), as(1, 4712, "d/f", O_RDONLY), as(1, 1, "d/f", O_RDONLY));
        printf("%s ", as(4711, 1, "d/new", O_CREAT | O_WRONLY)); close(open("d/new", O_CREAT | O_WRONLY, 0640));
        printf("%s %s %s", as(4711, 1, "d/new", O_RDONLY), as(4711, 1, "d/new", O_WRONLY), as(1, 1, "d/new", O_RDONLY));"#;
    // Going into the directory takes a right to it; what the owner makes there with 0640 lets 4711 read, and no more.
    assert_eq!(compiled(&store, body).ok().text(), "yes no no yes no no no yes no no");
}

#[test]
fn they_are_told_as_metadata_and_go_along() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    shell(&store, "mkdir d; setfacl -d -m u:4711:rwx d; echo hello > d/f; chmod 640 d/f").ok();
    let text = store.iov(&["tag", "w/d/f"]).ok().text();
    assert!(text.contains("posix.acl.access") && text.contains("u:4711:rwx"), "{text}");
    let facts = store.iov(&["stat", "--json", "w/d/f"]).ok().json();
    assert_eq!(facts[0]["mode"], "0640", "it has no mark");
    // A copy has a mode of its own, and no list that another mode has masked.
    store.iov(&["cp", "w/d/f", "w/copy"]).ok();
    assert!(!store.iov(&["tag", "w/copy"]).text().contains("posix.acl"));
    // An export brings both back, also of the root.
    shell(&store, "setfacl -m u:4711:rwx .; chmod 711 .; chmod 600 d/f").ok();
    let told = "getfacl -cn . d d/f; stat -c '%a %n' . d d/f";
    let before = shell(&store, told).ok().text();
    let out = store.path("out").display().to_string();
    store.iov(&["export", "w", &out]).ok();
    store.iov(&["import", &out, "v"]).ok();
    let there = crate::runs::run(&store, &["sh", "-c", &format!("cd /iov/v; {told}")]);
    assert_eq!(there.ok().text(), before);
    // It can be read as an attribute of `user.`, and not be set as such.
    let set = "! setfattr -n user.posix.acl.access -v u::rwx d/f && ! setfattr -x user.posix.acl.access d/f";
    shell(&store, set).ok();
}
