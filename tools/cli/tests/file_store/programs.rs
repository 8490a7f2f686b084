//! Programs that know nothing of IOVerbs, and the doors that they come through. docs/guide/programs.md has the same as a table.

use std::path::Path;

use crate::store::Ran;

/// How a program gets at a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// `iov mount`
    Mount,
    /// `iov mount -o strict`
    Strict,
    /// `iov run`
    Run,
}

const DOORS: [(Door, &str); 3] =
    [(Door::Mount, "`iov mount`"), (Door::Strict, "`iov mount -o strict`"), (Door::Run, "`iov run`")];

/// What a program does, as a script that ends with its first failure.
struct Program {
    name: &'static str,
    script: &'static str,
    /// What it says, where that matters.
    says: Option<&'static str>,
    /// A door that it does not go through, and why.
    not: Option<(Door, &'static str)>,
}

const fn program(name: &'static str, script: &'static str) -> Program {
    Program { name, script, says: None, not: None }
}

/// All of them, one after the other in one directory.
const PROGRAMS: &[Program] = &[
    // A small tree of sources that builds.
    program(
        "bash: redirection, links, times, odd names",
        r#"
mkdir -p src/deep/er && cd src
for i in $(seq 20); do echo "int f$i(void) { return $i; }" > deep/f$i.c; done
{ for i in $(seq 20); do echo "int f$i(void);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;';
  for i in $(seq 20); do echo "s += f$i();"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c
printf 'prog: main.o %s\n\tcc -o $@ $^\n' "$(for i in $(seq 20); do printf 'deep/f%s.o ' $i; done)" > Makefile
ln -s ../main.c deep/er/link; ln main.c deep/er/hard; chmod 750 deep; touch -d '2001-02-03 04:05:06.789' deep/f1.c
printf 'bytes \377 in a name' > $'deep/\377'
"#,
    ),
    program(
        "make -j2, a C compiler, and the program that comes of it",
        "make -s -j2 -C src && test $(src/prog) = 210 && touch src/deep/f3.c && make -s -C src && src/prog",
    ),
    program(
        "tar, diff",
        "tar cf t.tar src && mkdir x && tar xf t.tar -C x && diff -r --no-dereference src x/src
         test $(stat -c %Y.%a x/src/deep/f1.c) = $(stat -c %Y.%a src/deep/f1.c) && test -h x/src/deep/er/link",
    ),
    program(
        "cp -a, with hard links",
        "cp -a src y && diff -r --no-dereference src y && test $(stat -c %h y/main.c) = 2",
    ),
    program(
        "rsync, also with deletion",
        "rsync -aH src/ z/ && test -z \"$(rsync -aHnc --itemize-changes src/ z/)\" && rsync -a --delete x/src/deep/ z/",
    ),
    program(
        "find, du and rm -r, 40 levels deep",
        "n=$(printf 'd%.0s' $(seq 90)); mkdir deep && (cd deep && for i in $(seq 40); do mkdir $n n && echo x > n/f && cd $n; done) && \
         test $(find deep | wc -l) = 121 && du -s deep > /dev/null && rm -r deep && test ! -e deep",
    ),
    program("find, mv, rm -r", "find z -name '*.o' -delete && mv z zz && rm -rf zz x y && ls"),
    program(
        "git: commit, clone, fsck, status",
        "git init -q repo && cd repo && cp ../src/*.c . && git add -A && git -c user.name=a -c user.email=b commit -qm x \
         && cd .. && git clone -q repo clone && git -C clone fsck --strict && diff repo/main.c clone/main.c \
         && test -z \"$(git -C clone status --short)\"",
    ),
    program(
        "python: packages of it, files, subprocesses, threads",
        r#"mkdir -p p/q && echo 'x = 42' > p/q/__init__.py && ls p/q
python3 - <<'END'
import mmap, os, pathlib, shutil, subprocess, sys, tempfile, threading
sys.path.insert(0, '')
import p.q as q
assert q.x == 42
path = pathlib.Path('py'); path.mkdir()
(path / 'a').write_text('one\ntwo\n')
assert [line for line in open(path / 'a')] == ['one\n', 'two\n']
with open(path / 'a', 'r+b') as f:
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        assert m[4:7] == b'two'
    f.seek(0, 2); f.write(b'three\n')
with open(path / 'b', 'w') as f:
    subprocess.run(['cat', path / 'a'], stdout=f, check=True)
    subprocess.run(['sh', '-c', 'echo four'], stdout=f, check=True)
assert (path / 'b').read_text() == 'one\ntwo\nthree\nfour\n'
child = os.fork()
if child == 0:
    (path / 'c').write_text('child')
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and (path / 'c').read_text() == 'child'
def work(i):
    for n in range(20):
        with open(path / f't{i}', 'ab') as f: f.write(b'x' * 100)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert all((path / f't{i}').stat().st_size == 2000 for i in range(4))
assert sorted(os.listdir(path)) == ['a', 'b', 'c', 't0', 't1', 't2', 't3']
with tempfile.TemporaryDirectory(dir=path) as d:
    shutil.copytree(path, pathlib.Path(d) / 'copy', ignore=lambda *_: [os.path.basename(d)])
os.chdir(path); assert os.getcwd().endswith('/py') and os.path.samefile('.', os.path.realpath('.')); os.chdir('..')
shutil.rmtree(path)
END"#,
    ),
    Program {
        says: Some("60\nok\n"),
        ..program(
            "sqlite3 with three writers at a time",
            "sqlite3 t.db 'create table t(a integer primary key, b text);'
             for w in 1 2 3; do (for i in $(seq 20); do sqlite3 -cmd '.timeout 60000' t.db \"insert into t(b) values('$w')\"; done) & done
             wait; sqlite3 t.db 'select count(*) from t; pragma integrity_check;'",
        )
    },
    program(
        "fio: random reads and writes with verification",
        "fio --minimal --verify=crc32c --bs=4k --size=8m --rw=randrw --ioengine=psync --name=a > /dev/null",
    ),
    program(
        "fio past the cache (`O_DIRECT`)",
        "fio --minimal --verify=crc32c --bs=4k --size=8m --rw=randrw --ioengine=psync --direct=1 --name=c > /dev/null",
    ),
    Program {
        not: Some((Door::Run, "a mapping that is written and shared needs pages of the kernel")),
        ..program(
            "fio on mapped files",
            "fio --minimal --verify=crc32c --bs=4k --size=8m --rw=randrw --ioengine=mmap --name=b > /dev/null",
        )
    },
    program(
        "fio by `libaio`, and by POSIX AIO",
        "for engine in 'libaio --direct=1' posixaio; do
             fio --minimal --verify=crc32c --bs=4k --size=8m --rw=randrw --iodepth=16 --ioengine=$engine --name=d > d.out && ! grep signal d.out
         done",
    ),
    program("named pipes", "mkfifo f && (echo through > f &) && test $(cat f) = through && rm f"),
    program(
        "netCDF, classic and over HDF5 (ncgen, ncdump)",
        "printf 'netcdf x { dimensions: t = 4; variables: float v(t); data: v = 1,2,3,4; }' > x.cdl
         for k in classic nc4; do ncgen -k $k -o $k.nc x.cdl && ncdump $k.nc | grep -q 'v = 1, 2, 3, 4'; done",
    ),
    program(
        "h5py: chunks, compression, attributes, appending",
        r#"cat > h.py <<'END'
import h5py, numpy as np
x = np.arange(1_000_000, dtype="f4").reshape(1000, 1000)
with h5py.File("h.h5", "w") as f:
    f.create_dataset("x", data=x, chunks=(100, 250), compression="gzip", maxshape=(None, 1000)).attrs["unit"] = "K"
with h5py.File("h.h5", "r+") as f:
    f["x"].resize(1100, axis=0)
    f["x"][1000:] = x[:100]
    f["g/y"] = np.ones(7)
with h5py.File("h.h5") as f:
    assert (f["x"][:1000] == x).all() and (f["x"][1000:] == x[:100]).all()
    print(f["x"].attrs["unit"], f["g/y"].shape, f["x"].compression)
END
/usr/bin/python3 h.py"#,
    ),
    program("MPI-IO of three processes (MPICH, ROMIO): collective, independent", MPI),
    program(
        "sed -i, sort, split, gzip, dd, truncate, flock, df",
        "seq 1000 | sort -r > n && sed -i s/7/seven/ n && split -l 100 n n. && cat n.* | cmp - n && gzip -k n && zcat n.gz | cmp - n
         dd if=n of=m bs=100 seek=3 status=none && truncate -s 10000 m && test $(stat -c %s m) = 10000 && rm n.* m
         flock lock -c 'flock -n lock true || echo taken > said' && grep -q taken said && test $(df --output=fstype . | tail -1)",
    ),
];

/// Those that take long, or come in large packages: `make test-long` installs them.
const HEAVY: &[Program] = &[
    program("dbench", "dbench -t 20 -D . 3 > dbench.out && grep -q Throughput dbench.out"),
    program(
        "bonnie++",
        "mkdir b && chmod 777 b && bonnie++ -f -d b -s 128M -r 32M -n 2:20000:100:4 -u root -q > bonnie.out 2>&1 && rm -r b",
    ),
    program(
        "Open MPI: OMPIO and ROMIO",
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
         mpicc.openmpi -w -o ompi ../mpi.c
         for io in ompio romio321; do
             mpirun.openmpi --oversubscribe --mca io $io -n 3 ./ompi $io.out && test $(stat -c %s $io.out) = 394416
         done",
    ),
    program("OpenFOAM: a tutorial by one process and by two, time directories, checkMesh", OPENFOAM),
];

/// The lid-driven cavity, whose result does not depend on where its files are.
const OPENFOAM: &str = r#"export WM_PROJECT_DIR=/usr/share/openfoam OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
outside=$(mktemp -d)
cavity() {
    cp -r /usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity $1
    find $1 -name '*.gz' -exec gunzip {} +
    blockMesh -case $1 > $1/log.blockMesh
}
for case in $outside/one one; do cavity $case; icoFoam -case $case > $case/log.icoFoam; done
checkMesh -case one > one/log.checkMesh && grep -q 'Mesh OK' one/log.checkMesh
for time in 0 0.1 0.2 0.3 0.4 0.5; do diff -r $outside/one/$time one/$time; done
cavity two
printf 'FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
numberOfSubdomains 2;
method simple;
simpleCoeffs { n (2 1 1); delta 0.001; }
' > two/system/decomposeParDict
decomposePar -case two > two/log.decomposePar
mpirun.openmpi --oversubscribe -np 2 icoFoam -case two -parallel > two/log.icoFoam
reconstructPar -case two > two/log.reconstructPar
ls -d two/0.5/U two/processor0/0.5/U two/processor1/0.5/U > /dev/null
rm -r $outside"#;

/// Each process writes every third stripe of a file, all at once, and reads those of another; then each some by itself.
const MPI: &str = r#"cat > mpi.c <<'END'
#include <mpi.h>
#include <stdlib.h>
enum { N = 1024, STRIPES = 32 };
int main(int argc, char **argv) {
    int rank, size, bad = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int other = (rank + 1) % size, *b = malloc(4 * N * STRIPES), *c = malloc(4 * N * STRIPES);
    for (int i = 0; i < N * STRIPES; i++) b[i] = rank * 10000000 + i;
    MPI_Datatype t;
    MPI_Type_vector(STRIPES, N, N * size, MPI_INT, &t);
    MPI_Type_commit(&t);
    MPI_File f;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f)) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_File_set_view(f, (MPI_Offset)rank * N * 4, MPI_INT, t, "native", MPI_INFO_NULL);
    bad |= MPI_File_write_all(f, b, N * STRIPES, MPI_INT, MPI_STATUS_IGNORE) != 0;
    MPI_File_sync(f), MPI_Barrier(MPI_COMM_WORLD), MPI_File_sync(f);
    MPI_File_set_view(f, (MPI_Offset)other * N * 4, MPI_INT, t, "native", MPI_INFO_NULL);
    bad |= MPI_File_read_all(f, c, N * STRIPES, MPI_INT, MPI_STATUS_IGNORE) != 0;
    for (int i = 0; i < N * STRIPES; i++) bad |= c[i] != other * 10000000 + i;
    MPI_Offset end = (MPI_Offset)N * STRIPES * size, length;
    MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    bad |= MPI_File_write_at(f, end + rank * 100, b, 100, MPI_INT, MPI_STATUS_IGNORE) != 0;
    MPI_File_sync(f), MPI_Barrier(MPI_COMM_WORLD), MPI_File_sync(f);
    bad |= MPI_File_read_at(f, end + other * 100, c, 100, MPI_INT, MPI_STATUS_IGNORE) != 0;
    for (int i = 0; i < 100; i++) bad |= c[i] != other * 10000000 + i;
    MPI_File_get_size(f, &length);
    bad |= length != (end + size * 100) * 4;
    MPI_File_close(&f);
    MPI_Finalize();
    return bad;
}
END
mpicc.mpich -w -o mpi mpi.c && mpirun.mpich -n 3 ./mpi mpi.out && test $(stat -c %s mpi.out) = 394416"#;

/// Runs all that go through a door.
pub(crate) fn run_all(door: Door, shell: &dyn Fn(&str) -> Ran) {
    run(PROGRAMS, door, shell);
}

/// The same with those that take long, each in a directory of its own.
pub(crate) fn run_heavy(door: Door, shell: &dyn Fn(&str) -> Ran) {
    let source = MPI.split_once('\n').and_then(|(_, text)| text.split_once("\nEND\n")).unwrap().0;
    shell(&format!("cat > mpi.c <<'END'\n{source}\nEND")).ok();
    run(HEAVY, door, &|script| shell(&format!("rm -rf heavy; mkdir heavy; cd heavy\n{script}")));
}

fn run(programs: &[Program], door: Door, shell: &dyn Fn(&str) -> Ran) {
    for program in programs.iter().filter(|program| program.not.is_none_or(|(not, _)| not != door)) {
        eprintln!("{}", program.name);
        let ran = shell(program.script).ok();
        if let Some(says) = program.says {
            assert_eq!(ran.text(), says, "{}", program.name);
        }
    }
}

/// The table of the document.
fn table() -> String {
    let mut table = String::from("| program |");
    DOORS.iter().for_each(|(_, name)| table += &format!(" {name} |"));
    table += "\n| --- | --- | --- | --- |\n";
    for program in PROGRAMS.iter().chain(HEAVY) {
        let cell = |door: Door| match program.not {
            Some((not, why)) if not == door => format!("no: {why}"),
            _ => "works".to_owned(),
        };
        let cells: Vec<String> = DOORS.iter().map(|(door, _)| cell(*door)).collect();
        table += &format!("| {} | {} |\n", program.name, cells.join(" | "));
    }
    table
}

#[test]
fn the_document_of_programs_says_what_the_tests_run() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/programs.md"));
    let text = std::fs::read_to_string(path).unwrap();
    let from = text.find("| program |").expect("a table");
    let len = text[from..].find("\n\n").map_or(text.len() - from, |n| n + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let new = [&text[..from], &table(), &text[from + len..]].concat();
        std::fs::write(path, new).unwrap();
        return;
    }
    assert_eq!(text[from..from + len], table(), "UPDATE_DOCS=1 writes it anew");
}
