//! `iov hold-lock`: holds the locks of an open file that several programs of `iov run` have. They start it; people have no use for it.

use std::{
    ffi::OsString,
    fs::File as SystemFile,
    io::Write,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::FileExt,
            net::{UnixListener, UnixStream},
        },
    },
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use iov_posix::{
    Errno, File, FileSystem, Flags, Options, Outcome, Staying,
    holder::{Answer, Asked, Holder, Wants},
};
use ioverbs::{Error, Name, Uuid, Which, seam};
use rustix::fs::FlockOperation;

use crate::{ctx::Ctx, failure::Done};

/// How long it stays while it holds nothing.
const IDLE: Duration = Duration::from_secs(10);
/// How long one may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of the file that stands for the open file.
const RECORD: usize = 1 << 16;

/// Hold the locks of an open file that several programs have
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The name of a workspace
    workspace: OsString,
    /// The identity of a file in it
    file: String,
}

enum Event {
    /// Somebody wants something.
    Asks(UnixStream),
    /// Nobody has the open file any more, or nobody can ask.
    Over,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let failed = |e: std::io::Error| Error::from(e).context("what programs of iov run hand to it");
    let events = events().map_err(failed)?;
    // Who has the open file can read this.
    let stands = SystemFile::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    let mut record = vec![0; RECORD];
    let n = stands.read_at(&mut record, 0).map_err(failed)?;
    record.truncate(n);
    let which = Which::Name(Name::new(args.workspace.as_bytes())?);
    let (uuid, fs) =
        (Uuid::parse(&args.file)?, FileSystem::new(ctx.session()?.load_workspace(which)?, Options::default()));
    let mut holder: Option<(Holder, Option<Staying>)> = None;
    loop {
        let mut stream = match events.recv_timeout(IDLE) {
            Ok(Event::Asks(stream)) => stream,
            Err(RecvTimeoutError::Timeout) if holder.as_ref().is_some_and(|(holder, _)| holder.holds()) => continue,
            // Its locks end with its session.
            Ok(Event::Over) | Err(_) => return Ok(()),
        };
        let Some(asked) = asked(&mut stream).ok().flatten().filter(|asked| asked.proof == record) else { continue };
        let ends = asked.request.wants == Wants::End;
        if ends && !is_over() {
            say(stream, Answer(Ok(None)));
            continue;
        }
        if holder.is_none() && !ends {
            // Who hears nothing has its locks for itself.
            let Ok(file) = open(&fs, uuid, &asked.token) else { continue };
            holder = Some((Holder::new(file), iov_posix::stay(fs.workspace())));
        }
        // What has no name yet may be deleted when it is closed.
        if asked.request.wants == Wants::Keep && join(&fs, &asked.token).is_err() {
            continue;
        }
        let answer = holder.as_mut().map_or(Answer(Ok(None)), |(holder, _)| holder.answer(&asked.request));
        say(stream, answer);
        if ends {
            return Ok(());
        }
    }
}

/// The file, also if it has no name any more, or is held by those whose token that is.
fn open(fs: &FileSystem, uuid: Uuid, token: &[u8]) -> Outcome<File> {
    let found = match fs.by_identity(uuid) {
        Err(Errno::ENOENT | Errno::ESTALE) if !token.is_empty() => {
            join(fs, token)?;
            fs.by_identity(uuid)
        }
        found => found,
    };
    let node = found?.0;
    match File::open(&node, Flags::default()) {
        Err(Errno::EBUSY) if !token.is_empty() => {
            join(fs, token)?;
            File::open(&node, Flags::default())
        }
        opened => opened,
    }
    .map(|(file, _)| file)
}

/// Acts for those who have the file from now on (X1). They join by the same token for as long as this process is there.
fn join(fs: &FileSystem, token: &[u8]) -> Outcome<()> {
    let session = fs.workspace().session();
    session.join(token.to_vec())?;
    session.renew_leases();
    Ok(())
}

/// What happens, from two threads that wait for it.
fn events() -> std::io::Result<Receiver<Event>> {
    let (sender, events) = channel();
    let socket = UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let asks = sender.clone();
    seam::spawn("iov-asked", move || {
        while let Ok((stream, _)) = socket.accept() {
            if asks.send(Event::Asks(stream)).is_err() {
                return;
            }
        }
        let _ = asks.send(Event::Over);
    })?;
    seam::spawn("iov-watches", move || {
        // Whoever has the open file has this.
        while rustix::fs::flock(std::io::stdout(), FlockOperation::LockExclusive) == Err(rustix::io::Errno::INTR) {}
        let _ = sender.send(Event::Over);
    })?;
    Ok(events)
}

/// Whether nobody has the open file any more.
fn is_over() -> bool {
    rustix::fs::flock(std::io::stdout(), FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn asked(stream: &mut UnixStream) -> std::io::Result<Option<Asked>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    Asked::read(stream)
}

fn say(mut stream: UnixStream, answer: Answer) {
    // Who has gone away has not heard it, and asks again.
    let _ = stream.write_all(&answer.to_bytes());
}
