//! `iov run`: a program that sees workspaces as directories, without a mount.

use std::{
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use iov_posix::run::{Place, Program, Settings, VARIABLE, is_in_order};
use ioverbs::{Error, Kind, Name, Which};

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Next},
    options::ControlArgs,
    output::printable,
};

/// Where workspaces appear unless somebody says otherwise.
const EVERYWHERE: &str = "/iov";
/// The library that is loaded into programs.
const LIBRARY: &str = "libiov_preload.so";
/// Names the library, where it lies elsewhere.
const LIBRARY_VARIABLE: &str = "IOVERBS_PRELOAD";
/// The variable of the dynamic linker that has it loaded.
const PRELOAD: &str = "LD_PRELOAD";
/// Its variable with directories of libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Bytes of a file that say what kind of program it is.
const HEAD: u64 = 4096;
/// Programs that run programs (`#!`), in a row.
const INTERPRETERS: usize = 4;

/// Run a program that sees workspaces as directories, without a mount
///
/// The program, and those that it starts, find each workspace of the store at /iov/WS. Nothing is mounted, and nobody else sees it: a
/// library is loaded into the programs, which does there what they ask of files. Groups are directories, collections
/// files, metadata extended attributes, as with iov mount.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// This workspace appears at this path, which need not exist; several times. Without, each appears at /iov/WS
    #[arg(long, value_name = "WS=DIR")]
    at: Vec<OsString>,

    /// As of iov mount, separated by commas: strict (everybody sees at once what is written), store=URL (as -S)
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,

    #[command(flatten)]
    controls: ControlArgs,

    /// What is promised of files by where they are made, before -c: a pattern of paths from the root of a workspace and a profile, or
    /// controls, as in '/checkpoints/**=checkpoint'. Several times: later ones go before earlier ones
    #[arg(long = "rule", value_name = "PATTERN=PROFILE")]
    rules: Vec<String>,

    /// Print what a shell has to set for the programs that it starts from then on, in place of running one: for job scripts and
    /// launchers, as in env=$(iov run --env) && eval "$env"
    #[arg(long, conflicts_with = "program")]
    env: bool,

    /// The program and what it is told
    #[arg(
        required_unless_present = "env",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let mut settings = Settings::default();
    let options: Vec<String> = args.options.iter().flat_map(|options| iov_fuse::split_options(options)).collect();
    for option in options.iter().filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            None if option == "strict" => settings.strict = true,
            Some(("store", url)) => drop(ctx.global.store.get_or_insert_with(|| url.to_owned())),
            _ => {
                return Err(Error::invalid(format!(
                    "there is no option {option:?} here: strict and store=URL are known"
                )))
                .next(|| "iov run --help says what they do; others are of iov mount".into());
            }
        }
    }
    let controls = args.controls.read()?;
    if controls.mutability.is_some_and(|m| m != ioverbs::Mutability::Overwrite) {
        return Err(Error::invalid("-c mutability: programs expect of files that they can be overwritten").into());
    }
    let rules = args.rules.iter().map(|rule| iov_posix::Rule::parse(rule)).collect::<Result<_, _>>()?;
    let level = if settings.strict { iov_posix::Level::Strict } else { iov_posix::Level::Session };
    let promises = iov_posix::Options { level, controls, rules, ..iov_posix::Options::default() };
    (settings.controls, settings.rules) = (args.controls.controls.clone(), args.rules.clone());
    settings.deadline_ns = ctx.timeout_ns()?;
    settings.places = places(&args.at)?;
    let program = args.program.first().map(|program| found(program, &settings.places)).transpose()?;
    let library = library()?;

    // Who mistypes the store or a workspace hears of it here, and no program starts the daemon.
    let session = ctx.session()?;
    for place in &settings.places {
        let Some(name) = &place.workspace else {
            promises.check(&session, None)?;
            continue;
        };
        let workspace = Which::Name(Name::new(&name[..])?);
        let address = Address { store: None, workspace, path: Vec::new(), slash: false };
        let ws = ctx.workspace(&address).map_err(|e| e.about("--at"))?;
        promises.check(&session, Some(&ws))?;
    }
    settings.store = session.url().to_owned();
    if settings.store.starts_with("mem:") {
        return Err(Error::invalid("a mem: store is that of one process: use file:DIR").into());
    }
    settings.holder = std::env::current_exe().ok().map(|exe| exe.into_os_string().into_vec());
    let text = settings.to_text().map_err(Error::invalid)?;

    let preload = preload(&library)?;
    let settings = OsString::from_vec(text);
    let Some(program) = program else {
        for (name, value) in [(PRELOAD, &preload), (VARIABLE, &settings)] {
            ctx.out.line(export(name, value)?)?;
        }
        return Ok(());
    };
    let own = std::env::current_exe().map_err(Error::from)?;
    let mut command = match &program {
        Found::Outside(path) => Command::new(path),
        Found::Inside => Command::new(own),
    };
    match program {
        Found::Outside(_) => command.arg0(&args.program[0]),
        // Who sees it becomes it.
        Found::Inside => command.arg("start-program").arg("--").arg(&args.program[0]),
    };
    command.args(&args.program[1..]).env(VARIABLE, settings).env(PRELOAD, preload);
    ctx.out.flush()?;
    // This process becomes the program.
    let e = command.exec();
    Err(Error::from(e).context(format!("running {}", printable(args.program[0].as_bytes()))).into())
}

/// What the dynamic linker is told to load: the library before what is loaded anyway. Once, also where this is itself run so, from
/// whatever place.
fn preload(library: &Path) -> Done<OsString> {
    let mut preload = library.as_os_str().to_owned();
    if preload.as_bytes().iter().any(|b| *b == b':' || b.is_ascii_whitespace()) {
        let shown = printable(preload.as_bytes());
        return Err(Error::invalid(format!("{shown}: the dynamic linker takes no path with a colon or a blank")))
            .next(|| format!("install it elsewhere; {LIBRARY_VARIABLE} names another place"));
    }
    let before = std::env::var_os(PRELOAD).unwrap_or_default();
    for other in before.as_bytes().split(|b| *b == b':' || b.is_ascii_whitespace()).filter(|other| !other.is_empty()) {
        if Path::new(OsStr::from_bytes(other)).file_name() != Some(OsStr::new(LIBRARY)) {
            preload.push(":");
            preload.push(OsStr::from_bytes(other));
        }
    }
    Ok(preload)
}

/// A line for a shell, in which the value means nothing else.
fn export(name: &str, value: &OsStr) -> Done<String> {
    let value =
        value.to_str().ok_or_else(|| Error::invalid("--env: a path is no UTF-8, which not every shell takes"))?;
    Ok(format!("export {name}='{}'", value.replace('\'', "'\\''")))
}

/// Where workspaces appear.
fn places(at: &[OsString]) -> Done<Vec<Place>> {
    if at.is_empty() {
        return Ok(vec![Place { at: EVERYWHERE.into(), workspace: None }]);
    }
    let mut places: Vec<Place> = Vec::new();
    for text in at {
        let wrong = |why: &str| {
            let text = printable(text.as_bytes());
            Error::invalid(format!("--at {text} {why}: it is WORKSPACE=DIR, as in --at simulation=/data"))
        };
        let cut = text.as_bytes().iter().position(|b| *b == b'=').ok_or_else(|| wrong("names no directory"))?;
        let (name, dir) = (&text.as_bytes()[..cut], &text.as_bytes()[cut + 1..]);
        if name.is_empty() || dir.is_empty() {
            return Err(wrong("is not complete").into());
        }
        let dir = std::path::absolute(OsStr::from_bytes(dir)).map_err(Error::from)?;
        let dir = tidied(&dir);
        if !is_in_order(&dir) {
            return Err(wrong("names no directory where a workspace can be").into());
        }
        let dir = dir.into_vec();
        let within =
            |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
        if places.iter().any(|other| within(&dir, &other.at) || within(&other.at, &dir)) {
            return Err(wrong("lies in the directory of another").into());
        }
        places.push(Place { at: dir, workspace: Some(name.to_vec()) });
    }
    Ok(places)
}

/// The same path without `..` and slashes at its end.
fn tidied(path: &Path) -> OsString {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(tidied.pop()),
            part => tidied.push(part),
        }
    }
    tidied.into_os_string()
}

/// Where a program is.
enum Found {
    /// The kernel finds it, by this path.
    Outside(PathBuf),
    /// It, or something that it needs from its start, may be in a workspace, which this process does not see.
    Inside,
}

/// Finds a program and what it begins with, which may be in a place.
fn found(program: &OsStr, places: &[Place]) -> Done<Found> {
    let leads_in = |path: &OsStr| {
        let path = std::path::absolute(path).map(|path| tidied(&path)).unwrap_or_default();
        let path = path.as_bytes();
        let within = |place: &Place| {
            path.strip_prefix(&place.at[..]).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        places.iter().any(within)
    };
    let list_leads_in = |name: &str| {
        let list = std::env::var_os(name).unwrap_or_default();
        std::env::split_paths(&list).any(|dir| !dir.as_os_str().is_empty() && leads_in(dir.as_os_str()))
    };
    let named = program.as_bytes().contains(&b'/');
    let in_place = if named { leads_in(program) } else { list_leads_in("PATH") };
    if in_place || list_leads_in(LIBRARY_PATH) {
        return Ok(Found::Inside);
    }
    let path = find(program)?;
    match Program::of(&head(&path)) {
        Program::Script(interpreter, _) if leads_in(OsStr::from_bytes(&interpreter)) => Ok(Found::Inside),
        _ => Ok(Found::Outside(path)),
    }
}

/// The first bytes of a program. What cannot be read may be run all the same; running it tells.
fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(HEAD).read_to_end(&mut head);
    }
    head
}

/// The file of a program, which must be one that the library can be loaded into.
fn find(program: &OsStr) -> Done<PathBuf> {
    let shown = printable(program.as_bytes());
    let path = if program.as_bytes().contains(&b'/') {
        PathBuf::from(program)
    } else {
        let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let is_program =
            |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
        std::env::split_paths(&dirs)
            .map(|dir| dir.join(program))
            .find(is_program)
            .ok_or_else(|| Error::not_found(format!("there is no program {shown}")))
            .next(|| "name one that is in PATH, or its path".into())?
    };
    let mut kind = Program::of(&head(&path));
    for _ in 0..INTERPRETERS {
        let Program::Script(interpreter, _) = &kind else { break };
        kind = Program::of(&head(Path::new(OsStr::from_bytes(interpreter))));
    }
    match kind.cannot_see() {
        Some(what) => Err(Error::unsupported(format!("{shown} is {what}")))
            .next(|| "iov mount WS DIR shows it a workspace".into()),
        None => Ok(path),
    }
}

/// The library, which lies beside this program or where libraries are.
fn library() -> Done<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        // Programs may start in other directories.
        let found = Path::new(&path).canonicalize();
        return Ok(
            found.map_err(|e| Error::from(e).context(format!("{LIBRARY_VARIABLE}={}", printable(path.as_bytes()))))?
        );
    }
    let exe = std::env::current_exe().map_err(Error::from)?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY), dir.join("deps").join(LIBRARY)];
    let found = places.iter().find(|path| path.is_file());
    let Some(found) = found else {
        let why = format!("{LIBRARY} is not beside {}", printable(exe.as_os_str().as_bytes()));
        return Err(Error::new(Kind::NotFound, why))
            .next(|| format!("make build makes it, make install installs it; {LIBRARY_VARIABLE} names another place"));
    };
    Ok(found.canonicalize().unwrap_or_else(|_| found.clone()))
}
