//! `iov hold-lock`: holds the locks of an open file that several programs of `iov run` have. They start it; people have no use for it.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            net::{UnixListener, UnixStream},
        },
    },
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use iov_posix::{
    Errno, File, FileSystem, Flags, Options, Staying,
    holder::{Answer, Holder, Request},
};
use ioverbs::{Error, Name, Uuid, Which, seam};
use rustix::fs::FlockOperation;

use crate::{ctx::Ctx, failure::Done};

/// How long it stays while it holds nothing.
const IDLE: Duration = Duration::from_secs(10);
/// How long one may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// Nobody has the open file any more.
    Over,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    // What fails is told to who asks, for as long as somebody may.
    let events = events().map_err(|e| Error::from(e).context("what programs of iov run hand to it"))?;
    let (mut holder, _stays) = match open(ctx, args) {
        Ok((file, stays)) => (Holder::new(file), stays),
        Err(e) => {
            while let Ok(Event::Asks(stream)) = events.recv_timeout(IDLE) {
                let _ = answer(stream, |_| Answer(Err(Errno::ENOLCK)));
            }
            return Err(e);
        }
    };
    loop {
        match events.recv_timeout(IDLE) {
            // Who asks and goes away has not heard the answer, and asks again.
            Ok(Event::Asks(stream)) => drop(answer(stream, |asked| holder.answer(asked))),
            Err(RecvTimeoutError::Timeout) if holder.holds() => {}
            // Its locks end with its session.
            Ok(Event::Over) | Err(_) => return Ok(()),
        }
    }
}

fn open(ctx: &mut Ctx, args: &Args) -> Done<(File, Option<Staying>)> {
    let which = Which::Name(Name::new(args.workspace.as_bytes())?);
    let uuid = Uuid::parse(&args.file)?;
    let fs = FileSystem::new(ctx.session()?.load_workspace(which)?, Options::default());
    let opened = fs.by_identity(uuid).and_then(|(node, _)| File::open(&node, Flags::default()));
    let (file, _) = opened.map_err(|e| Error::not_found(format!("{uuid} cannot be opened: {e:?}")))?;
    // It is asked for nothing for as long as a lock is held.
    Ok((file, iov_posix::stay(fs.workspace())))
}

/// What happens, from two threads that wait for it.
fn events() -> std::io::Result<Receiver<Event>> {
    let (sender, events) = channel();
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let socket = UnixListener::from(socket);
    let asks = sender.clone();
    seam::spawn("iov-asked", move || {
        while let Ok((stream, _)) = socket.accept() {
            if asks.send(Event::Asks(stream)).is_err() {
                return;
            }
        }
    })?;
    seam::spawn("iov-watches", move || {
        // Whoever has the open file has this.
        while rustix::fs::flock(std::io::stdout(), FlockOperation::LockExclusive) == Err(rustix::io::Errno::INTR) {}
        let _ = sender.send(Event::Over);
    })?;
    Ok(events)
}

fn answer(mut stream: UnixStream, answer: impl FnOnce(&Request) -> Answer) -> std::io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut asked = [0; Request::LEN];
    stream.read_exact(&mut asked)?;
    let answer = Request::read(&asked).map_or(Answer(Err(Errno::EINVAL)), |asked| answer(&asked));
    stream.write_all(&answer.to_bytes())
}
