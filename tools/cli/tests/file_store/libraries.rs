//! Programs and libraries that lie in a workspace, in `iov run`: what they need is found where it would be found in any directory.

use std::process::Command;

use crate::{
    runs::{has_library, run},
    store::Store,
};

/// Makes, in the directory of the process, a program `bin/main` that prints what the libraries of `lib` say: `first` needs `second`, which has no name of its
/// own and needs `third`. Then `second` beside it, as somebody else has it.
const MADE: &str = r#"set -e
mkdir -p bin lib other; echo 'int third(void) { return 3; }' > third.c
echo 'int third(void); int second(void) { return 20 + third(); }' > second.c
echo 'int second(void); int first(void) { return 100 + second(); }' > first.c
echo 'int second(void) { return 7; }' > otherwise.c
printf '#include <stdio.h>\nint first(void); int main(void) { printf("%%d%%c", first(), 10); return 0; }' > main.c
cc -shared -fPIC -Wl,-soname,libthird.so.1 -o lib/libthird.so.1 third.c; ln -sf libthird.so.1 lib/libthird.so
cc -shared -fPIC -o lib/libsecond.so second.c -Llib -lthird -Wl,--enable-new-dtags,-rpath,'$ORIGIN'
cc -shared -fPIC -o other/libsecond.so otherwise.c
cc -shared -fPIC -Wl,-soname,libfirst.so -o lib/libfirst.so first.c -Llib -lsecond -Wl,-rpath-link,lib -Wl,--disable-new-dtags
cc -shared -fPIC -o lib/libdeep.so first.c -Llib -lsecond -Wl,-rpath-link,lib -Wl,--enable-new-dtags,-rpath,'$ORIGIN/../lib'
cc -o bin/main main.c -Llib -lfirst -Wl,-rpath-link,lib -Wl,--disable-new-dtags,-rpath,'$ORIGIN/../lib'
cc -o bin/plain main.c -Llib -lfirst -Wl,-rpath-link,lib
"#;

/// What a script says in a directory of the system and in a workspace.
fn both(script: &str) -> (String, String, Store) {
    let store = Store::with_workspace();
    std::fs::create_dir(store.path("here")).unwrap();
    let script = format!("{MADE}{script}");
    let outside = Command::new("sh").args(["-c", &script]).current_dir(store.path("here")).output().unwrap();
    let inside = run(&store, &["sh", "-c", &format!("cd /iov/w; {script}")]);
    let said = String::from_utf8(outside.stdout).unwrap();
    (said, inside.text(), store)
}

#[test]
fn programs_find_the_libraries_that_lie_beside_them() {
    if !has_library() {
        return;
    }
    let script = r#"
bin/main; ln -s bin/main link; ./link; ln -s bin there; there/main; env -i "$PWD/bin/main"; (cd lib; ../bin/main)
bin/plain 2> /dev/null || echo none
LD_LIBRARY_PATH=lib bin/plain; LD_LIBRARY_PATH=/nowhere:$PWD/lib bin/plain; LD_LIBRARY_PATH=$PWD/other bin/main; (cd lib; LD_LIBRARY_PATH=:/x ../bin/plain)
export LD_LIBRARY_PATH=$PWD/other:$PWD/lib; bin/plain; sh -c 'test "$LD_LIBRARY_PATH" = "$PWD/other:$PWD/lib" && echo same; env | grep -c IOVERBS_RUN_LIB; ls /proc/self/fd | wc -l'
unset LD_LIBRARY_PATH; cp /bin/readlink bin; bin/readlink /proc/self/exe | sed "s:$PWD/::"
/lib64/ld-linux-x86-64.so.2 /bin/cat third.c; /lib64/ld-linux-x86-64.so.2 --version | head -1
# The first thing that it asks is where it is, and programs are looked for here, too.
printf '#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\nint main(void) { char at[999]; puts(strrchr(getcwd(at, 999), 47)); return access("main.c", 0); }\n' > where.c; cc -o bin/where where.c
(unset IOVERBS_IOVD; cd lib; ../bin/where); (unset IOVERBS_IOVD; PATH=$PWD/bin:$PATH; cd other; where)
(sleep 0.2; exec bin/main) & echo left $(ls -d /tmp/iov-libraries-*/$!-* 2> /dev/null); wait; echo left $(ls -d /tmp/iov-libraries-*/$!-* 2> /dev/null); rm lib/libsecond.so; bin/main 2>&1 | sed 's/.*: lib/lib/'"#;
    let (outside, inside, store) = both(script);
    assert!(outside.starts_with("123\n123\n123\n123\n123\nnone\n123\n123\n123\n123\n107\nsame\n0\n"), "{outside}");
    assert_eq!(inside, outside);
    // `iov run` itself starts what lies in a workspace, and what needs something of one.
    assert_eq!(
        run(&store, &["sh", "-c", "cd /iov/w; sh -c 'cc -shared -fPIC -o lib/libsecond.so otherwise.c'"]).code,
        Some(0)
    );
    assert_eq!(run(&store, &["/iov/w/bin/main"]).ok().text(), "107\n");
    run(&store, &["cp", "/iov/w/bin/plain", store.path("plain").to_str().unwrap()]).ok();
    let plain = store.path("plain");
    let mut command = store.command(&["run", "--", plain.to_str().unwrap()]);
    let ran = crate::store::Ran::new(command.env("LD_LIBRARY_PATH", "/iov/w/lib").output().unwrap());
    assert_eq!(ran.ok().text(), "107\n");
    let mut command = store.command(&["run", "--", "main"]);
    let ran = crate::store::Ran::new(command.env("PATH", "/usr/bin:/bin:/iov/w/bin").output().unwrap());
    assert_eq!(ran.ok().text(), "107\n");
    run(&store, &["/iov/w/bin/none"]).fails(66, &["/iov/w/bin/none", "No such file"]);
    // A script outside may name one.
    let script = store.file("script", b"#!/iov/w/bin/run -e\necho $0 $1; false; echo not reached\n");
    let run_it = format!("cp /bin/sh /iov/w/bin/run; {script} x; chmod +x {script}; {script} x");
    let ran = run(&store, &["sh", "-c", &run_it]);
    assert_eq!((ran.text(), ran.code), (format!("{script} x\n"), Some(1)));
    assert!(ran.err.contains("ermission denied"), "{}", ran.err);
}

#[test]
fn libraries_that_are_loaded_find_what_lies_beside_them() {
    if !has_library() {
        return;
    }
    let script = r#"
cat > load.py <<'END'
import ctypes, os, subprocess, sys
here = os.getcwd()
def said(path, name='first', **more):
    try: return getattr(ctypes.CDLL(path, **more), name)()
    except OSError as e: return str(e).replace(here, '').split(':')[0]
# What needs one that nobody finds; what finds what it needs beside itself; by relative paths, and again.
print(said(here + '/lib/libfirst.so'), said(here + '/lib/libsecond.so', 'second'), said('lib/libthird.so', 'third'))
print(said(here + '/lib/libdeep.so'), said('libsecond.so', 'second'), said('libnone.so'), said('lib/libnone.so'))
# Where the linker says that they are.
class Info(ctypes.Structure): _fields_ = [('name', ctypes.c_char_p), ('base', ctypes.c_void_p), ('symbol', ctypes.c_char_p), ('at', ctypes.c_void_p)]
def where(library, name):
    info = Info(); ctypes.CDLL(None).dladdr(ctypes.cast(getattr(library, name), ctypes.c_void_p), ctypes.byref(info)); return info.name.decode().replace(here, '')
print(where(ctypes.CDLL(here + '/lib/libdeep.so'), 'first'), where(ctypes.CDLL(here + '/lib/libthird.so.1'), 'third'))
# One that is made anew under its name is another one.
old = ctypes.CDLL(here + '/other/libsecond.so')
open('otherwise.c', 'w').write('int second(void) { return 8; }')
subprocess.run('cc -shared -fPIC -o other/new.so otherwise.c && mv other/new.so other/libsecond.so', shell=True, check=True)
print(old.second(), ctypes.CDLL(here + '/lib/libsecond.so').second())
# (Those of the store lie above.)
low = lambda: sum(int(fd) < 200 for fd in os.listdir('/proc/self/fd'))
descriptors = low()
for i in range(20):
    open('one.c', 'w').write('int one(void) { return %d; }' % i)
    subprocess.run('cc -shared -fPIC -o lib/one%d.so one.c' % i, shell=True, check=True)
    assert ctypes.CDLL(here + '/lib/one%d.so' % i).one() == i
print(low() - descriptors)
END
python3 load.py
LD_LIBRARY_PATH=$PWD/lib python3 -c "import ctypes; print(ctypes.CDLL('libfirst.so').first())"
(cd lib; python3 -c "import ctypes; print(ctypes.CDLL('./libsecond.so').second())")"#;
    let (outside, inside, _store) = both(script);
    assert!(outside.ends_with("123\n23\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn links_to_libraries_are_followed_wherever_they_lead() {
    if !has_library() {
        return;
    }
    let script = r#"
T=$(mktemp -d); cp other/libsecond.so $T; cp lib/libthird.so.1 $T/left.so; mkdir out abs; ln -s $T/libsecond.so out; ln -s $T dirout; ln -s $PWD/lib abslib
for l in lib/*; do ln -s $PWD/$l abs/; done; ln -s $PWD/dirout/left.so twice.so; ln -s $PWD/abs/libthird.so.1 $T/back.so; ln -s $T/back.so back.so; ln -s $T/none.so none.so; ln -s $T/round.so round.so; ln -s $PWD/round.so $T
printf '#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **a) { void *h = dlopen(a[1], 2); int (*f)(void) = h ? (int (*)(void))dlsym(h, a[2]) : 0; printf("%%d%%c", f ? f() : -1, 10); return 0; }' > load.c
cc -o bin/load load.c; cp bin/load $T
for load in bin/load $T/load; do
$load out/libsecond.so second; $load $PWD/dirout/libsecond.so second; $load abs/libthird.so.1 third; $load $PWD/abslib/libthird.so third
$load ./twice.so third; $load ./back.so third; $load ./none.so third; $load ./round.so third
done
LD_LIBRARY_PATH=abs bin/plain; LD_LIBRARY_PATH=$PWD/abslib bin/plain; LD_LIBRARY_PATH=$PWD/out:$PWD/lib bin/plain; LD_LIBRARY_PATH=dirout:abslib bin/plain
cp bin/plain $T; LD_LIBRARY_PATH=$PWD/out:$PWD/abs $T/plain; rm -r $T"#;
    let (outside, inside, _store) = both(script);
    let loads = "7\n7\n3\n3\n3\n3\n-1\n-1\n";
    assert_eq!(outside, format!("{loads}{loads}123\n123\n107\n107\n107\n"));
    assert_eq!(inside, outside);
}

#[test]
fn a_library_is_one_whatever_it_is_asked_for_by() {
    if !has_library() {
        return;
    }
    let script = r#"
echo 'int n; int *count(void) { return &n; }' > count.c; cc -shared -fPIC -o lib/libcount.so.1 count.c; ln -sf libcount.so.1 lib/libcount.so
echo 'int *count(void); int *other(void) { return count(); }' > other.c
cat > one.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int *count(void), *other(void);
int main(int n, char **path) {
    void *again = dlopen(path[1], RTLD_NOW), *there = dlopen(path[1], RTLD_NOW | RTLD_NOLOAD), *linked = dlopen(path[2], RTLD_NOW);
    int *(*one)(void) = again ? dlsym(again, "count") : 0, *(*two)(void) = linked ? dlsym(linked, "count") : 0;
    printf("%d %d %d %d\n", count() == other(), one && one() == count(), there != 0, two && two() == count());
    return 0;
}
END
# By the name with a number and by the one without; neither is its own.
(cd lib; cc -shared -fPIC -o libother.so ../other.c -L. -l:libcount.so -Wl,--enable-new-dtags,-rpath,'$ORIGIN')
cc -o bin/one one.c -Llib -l:libcount.so.1 -lother -ldl -Wl,--disable-new-dtags,-rpath,'$ORIGIN/../lib'
bin/one $PWD/lib/libcount.so.1 $PWD/bin/../lib/libcount.so; (cd lib; ../bin/one ./libcount.so.1 libcount.so)
# What the program says of directories counts for what its libraries load.
echo 'int plug(void) { return 9; }' > plug.c; cc -shared -fPIC -o lib/libplug.so plug.c
printf '#include <dlfcn.h>\nint loads(void) { void *h = dlopen("libplug.so", RTLD_NOW); return h ? ((int (*)(void)) dlsym(h, "plug"))() : -1; }\n' > loads.c
mkdir -p deep; cc -shared -fPIC -o deep/libloads.so loads.c
printf '#include <stdio.h>\nint loads(void); int main(void) { printf("%%d%%c", loads(), 10); return 0; }\n' > asks.c
cc -o bin/asks asks.c -Ldeep -lloads -ldl -Wl,--disable-new-dtags,-rpath,'$ORIGIN/../lib:$ORIGIN/../deep'; bin/asks
# Semicolons separate, an empty list says nothing, and a program is where it is and not where a link to it is.
LD_LIBRARY_PATH="/none;lib" bin/plain; LD_LIBRARY_PATH='/none:$ORIGIN/../lib' bin/plain; (cd lib; LD_LIBRARY_PATH= ../bin/plain 2> /dev/null || echo none)"#;
    let (outside, inside, _store) = both(script);
    assert_eq!(outside, "1 1 1 1\n1 1 1 1\n9\n123\n123\nnone\n");
    assert_eq!(inside, outside);
}

#[test]
fn what_nobody_changes_any_more_is_loaded_from_where_it_lies() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = format!(
        r#"
mkdir sealed; setfattr -n user.posix.controls -v mutability=immutable,concurrency=exclusive sealed; cd sealed; {MADE}
cat > maps.py <<'END'
import ctypes, os
first = ctypes.CDLL(os.getcwd() + '/lib/libdeep.so')
maps = [line for line in open('/proc/self/maps') if ' r-xp ' in line]
print(first.first(), sum('memfd:' in line for line in maps), sum(os.environ['STORE'] in line for line in maps))
os.system('rm -r lib'); print(first.first())
END
bin/main; python3 maps.py; bin/main 2> /dev/null || echo gone"#
    );
    let mut command = store.command(&["run", "--", "sh", "-c", &format!("cd /iov/w; {script}")]);
    let ran = crate::store::Ran::new(command.env("STORE", store.path("store")).output().unwrap());
    // Three libraries, of which none is a copy, and which are still there when their names are not.
    assert_eq!(ran.ok().text(), "123\n123 0 3\n123\ngone\n");
}
