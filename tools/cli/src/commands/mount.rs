//! `iov mount`: a workspace as a directory of the system.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    time::Duration,
};

use clap::builder::{OsStringValueParser, TypedValueParser};
use ioverbs::{Error, seam};

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Failure, Next},
    options::ControlArgs,
    output::printable,
};

/// What the process in the background says once the directory can be used.
const READY: &str = "mounted";
/// The process in the background is told by this that it is the one.
const BEHIND: &str = "IOV_MOUNT_BEHIND";
/// How soon it is asked to stop once more.
const AGAIN_NS: i64 = 1_500_000_000;
/// How often the process in front looks whether it is to stop.
const LOOK_NS: u64 = 100_000_000;

/// Make a workspace appear as a directory, for programs that know nothing of IOVerbs
///
/// Groups are directories, collections files, metadata extended attributes. What one program writes in the directory another
/// sees there at once; elsewhere, whoever opens the file after it was closed. With -o strict everybody does at once, which
/// costs the kernel's caches. A process in the background serves it until iov umount; with --foreground it says why the store
/// refuses something. It takes /dev/fuse, and, of who is not root, fusermount3 (Debian: fuse3), which lets allow_other only where
/// /etc/fuse.conf says user_allow_other. In fstab: simulation /srv/simulation fuse.iov store=file:/srv/store,nofail 0 0
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS
    #[arg(value_parser = Source::parser())]
    workspace: Source,

    /// Where it is to appear: an empty directory, or one whose contents may be hidden meanwhile
    #[arg(value_name = "DIR")]
    at: PathBuf,

    /// As in fstab, separated by commas: ro, strict (everybody sees at once what is written; else session: who opens a file after it was
    /// closed), ttl=SECONDS (how long the kernel may take names and attributes for true;
    /// 1 unless said), tags (by/KEY/VALUE shows what has that metadata; tags=NAME: under another name), store=URL (as -S, \, for a comma),
    /// allow_other (other users may enter), passthrough=off (the kernel moves no bytes of files by itself),
    /// io_uring=off (requests do not go by rings), io_uring (or else nothing is mounted), nosuid, nodev, noexec, noatime, sync,
    /// remount (with ro, rw and others that the kernel sees to: what is mounted gets them; the rest stays as it was mounted)
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,

    #[command(flatten)]
    controls: ControlArgs,

    /// What is promised of files by where they are made, before -c: a pattern of paths and a profile, or controls, as in
    /// '/checkpoints/**=checkpoint' or '/logs/*=consistency=commit,mutability=append' (which only who opens them to append can
    /// write). Several times: later ones go before earlier ones
    #[arg(long = "rule", value_name = "PATTERN=PROFILE")]
    rules: Vec<String>,

    /// Serve it in this process, until Ctrl-C or iov umount
    #[arg(long, short)]
    foreground: bool,
}

/// What is mounted, and how that was written.
#[derive(Clone, Debug)]
struct Source {
    address: Address,
    text: OsString,
}

impl Source {
    fn parser() -> impl TypedValueParser<Value = Source> {
        let read = |text: OsString| Address::parse(&text).map(|address| Source { address, text });
        OsStringValueParser::new().try_map(move |text| read(text).map_err(|e| e.detail().to_owned()))
    }
}

/// To be called before anything is opened: what the program that mounts has open is not for the process that serves the directory, which may
/// stay for years, with locks that somebody waits for.
pub(crate) fn begin() {
    if std::env::var_os(BEHIND).is_some() {
        ioverbs::kept::close_inherited();
    }
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let Source { address, text } = &args.workspace;
    address.only_workspace()?;
    let (said, store) = said(&args.options);
    if let Some(url) = store {
        ctx.global.store.get_or_insert(url);
    }
    if said.iter().any(|option| option == "remount") {
        return remount(ctx, args, &said);
    }
    let mut options = iov_fuse::MountOptions::default();
    iov_fuse::parse_options(&mut options, &said)?;
    options.posix.controls = args.controls.read()?;
    options.posix.rules = args.rules.iter().map(|rule| iov_fuse::Rule::parse(rule)).collect::<Result<_, _>>()?;
    if options.posix.controls.mutability.is_some_and(|m| m != ioverbs::Mutability::Overwrite) {
        return Err(Error::invalid("-c mutability: programs expect of files that they can be overwritten").into());
    }
    let behind = std::env::var_os(BEHIND).is_some();
    if !args.foreground && !behind {
        return in_background(ctx);
    }
    let ws = ctx.workspace(address)?;
    options.posix.check(ws.session(), Some(&ws))?;
    // As in fstab: by that `mount -a` sees that it is there.
    options.source = printable(text.as_bytes());
    options.posix.report = Some(Arc::new(|what, e| {
        // There may be nobody to read it.
        let _ = writeln!(std::io::stderr(), "iov: mount: {what}: {e}");
    }));
    // Whatever has become of the file by then.
    options.looker = Some("/proc/self/exe".into());
    let mount = iov_fuse::Mount::new(ws, &args.at, options)?;
    if behind {
        // It keeps no other file system from being unmounted. Whatever was named from here has been found by now.
        rustix::process::chdir("/").map_err(|e| Error::from(std::io::Error::from(e)))?;
        ctx.out.line(READY)?;
        ctx.out.flush()?;
    }
    let (at, stop) = (mount.at().to_owned(), ctx.stop.clone());
    let watcher = seam::spawn("iov-umount", move || {
        while !stop.is_set() {
            seam::sleep(LOOK_NS);
        }
        // Whoever is in it keeps what they have open.
        if iov_fuse::unmount(&at, false).is_err() {
            let _ = iov_fuse::unmount(&at, true);
        }
    });
    watcher.map_err(|e| Error::from(e).context("a thread that waits for signals"))?;
    Ok(mount.wait()?)
}

/// The options one by one, and the store that they name.
fn said(options: &[String]) -> (Vec<String>, Option<String>) {
    let (mut said, mut store) = (Vec::new(), None);
    for option in iov_fuse::split_options(&options.join(",")) {
        let option = option.trim();
        match option.strip_prefix("store=") {
            Some(url) => drop(store.get_or_insert_with(|| url.to_owned())),
            None => said.push(option.to_owned()),
        }
    }
    (said, store)
}

/// Changes what the kernel sees to of what is mounted, which all else has to fit.
fn remount(ctx: &mut Ctx, args: &Args, said: &[String]) -> Done {
    let address = &args.workspace.address;
    if !args.controls.controls.is_empty() || !args.rules.is_empty() || args.foreground {
        return Err(Error::invalid(
            "-c, --rule and --foreground are said when a workspace is mounted, not by a remount",
        ))
        .next(|| "iov umount DIR, and mount it anew".into());
    }
    ctx.use_store(address)?;
    let wanted = iov_fuse::Wanted { workspace: &address.workspace, store: ctx.global.store.as_deref() };
    Ok(iov_fuse::remount(&args.at, &wanted, said)?)
}

/// Asks the process in the background to take back what it has done. It may have ended by itself.
fn end(child: &Child) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
}

/// What the process in the background says first. Who does not want to wait any longer ends it.
fn waited(ctx: &Ctx, child: &mut Child) -> std::io::Result<String> {
    let Some(out) = child.stdout.take() else { return Ok(String::new()) };
    let (tell, told) = channel();
    seam::spawn("iov-ready", move || {
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line).map(|_| line.trim_end().to_owned());
        // Nobody may wait any more.
        let _ = tell.send(read);
    })?;
    let mut asked_ns = None;
    loop {
        match told.recv_timeout(Duration::from_nanos(LOOK_NS)) {
            Ok(line) => return line,
            Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = seam::monotonic_ns();
        // The first asks it to take back what it has done; where it is in the middle of something, the second ends it.
        if ctx.stop.is_set() && asked_ns.is_none_or(|asked| now - asked > AGAIN_NS) {
            asked_ns = Some(now);
            end(child);
        }
    }
}

/// Starts this command once more, in front of nobody, and waits until it serves the directory.
fn in_background(ctx: &mut Ctx) -> Done {
    let failed = |e: std::io::Error| Error::from(e).context("starting the process that serves the directory");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    // Under the same name, which may say how the rest is meant.
    let mut args = std::env::args_os();
    command.arg0(args.next().unwrap_or_default()).args(args).env(BEHIND, "1");
    // Signals for this terminal's programs are not for it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    if waited(ctx, &mut child).map_err(failed)? == READY {
        if ctx.stop.is_set() {
            end(&child);
            child.wait().map_err(failed)?;
        }
        return Ok(ctx.stop.check()?);
    }
    let mut said = Vec::new();
    if let Some(mut err) = child.stderr.take() {
        err.read_to_end(&mut said).map_err(failed)?;
    }
    ctx.err.bytes(&said)?;
    let code = child.wait().map_err(failed)?.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure::Elsewhere(code.unwrap_or(70)))
}
