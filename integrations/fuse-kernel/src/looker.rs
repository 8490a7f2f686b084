//! Who asks a mount for something, so that what lies in one of its queues is taken with the answer (see `watch`).
//!
//! That is a process of its own, if there is a program for it. Whoever waits in the kernel for what his own process serves cannot end when that is killed: as long as he has its
//! memory, in which the rings are mapped, the rings stay, and with them the connection to the kernel; so nobody would ever be told that nothing serves the mount any more.

use std::{
    collections::HashMap,
    io::{Read, Result, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
};

use iov_store::seam;

use crate::{
    abi::NOTHING,
    crew::{Crew, Looking, lock},
};

/// What is under way by queues.
type UnderWay = Arc<Mutex<HashMap<u16, Vec<Looking>>>>;

/// The process, while there is one.
struct Running {
    to: ChildStdin,
    under_way: UnderWay,
}

/// Asks for something on each queue.
pub(crate) struct Looker {
    at: PathBuf,
    program: Option<Box<dyn Fn() -> Command + Send + Sync>>,
    running: Mutex<Option<Running>>,
}

impl Looker {
    /// Of the mount on a directory; `program`: what makes the process that does it.
    pub(crate) fn new(at: &Path, program: Option<Box<dyn Fn() -> Command + Send + Sync>>) -> Looker {
        Looker { at: at.to_owned(), program, running: Mutex::default() }
    }

    /// Starts the process, before anything waits for what it is to do: a child that has a file of the mount open until it runs its program may wait for that itself.
    pub(crate) fn begin(&self) {
        let mut running = lock(&self.running);
        if let Some(program) = self.program.as_ref().filter(|_| running.is_none()) {
            *running = start(program()).ok();
        }
    }

    /// Has a queue given something to answer, without waiting for that.
    pub(crate) fn look(&self, crew: &Crew, queue: u16) {
        let Some(program) = &self.program else { return self.look_here(crew, queue) };
        let mut running = lock(&self.running);
        if running.is_none() {
            *running = start(program()).ok();
        }
        let Some(process) = running.as_mut() else { return self.look_here(crew, queue) };
        lock(&process.under_way).entry(queue).or_default().push(crew.looks());
        if process.to.write_all(&queue.to_le_bytes()).is_err() {
            // It has ended. What it has not answered is forgotten with it.
            *running = None;
        }
    }

    /// By a thread of this process, which is better than nothing. It keeps none of its descriptors at least.
    fn look_here(&self, crew: &Crew, queue: u16) {
        let (at, under_way) = (self.at.clone(), crew.looks());
        let looking = move || {
            let _under_way = under_way;
            look_once(&at, queue);
        };
        let _ = seam::spawn_apart("iov-fuse-look", looking);
    }
}

fn start(mut program: Command) -> Result<Running> {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn()?;
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("a process without the pipes that it was asked for with"));
    };
    let under_way = UnderWay::default();
    let told = under_way.clone();
    seam::spawn("iov-fuse-looks", move || hear(child, from, &told))?;
    Ok(Running { to, under_way })
}

/// Hears what it has been told to do and has done, until it ends.
fn hear(mut child: Child, mut from: ChildStdout, under_way: &UnderWay) {
    let mut queue = [0; 2];
    while from.read_exact(&mut queue).is_ok() {
        if let Some(looks) = lock(under_way).get_mut(&u16::from_le_bytes(queue)) {
            looks.pop();
        }
    }
    lock(under_way).clear();
    let _ = child.wait();
}

/// Asks the mount for what nothing has, on the processor of a queue. Where that is not this process's to use, it comes to another queue.
fn look_once(at: &Path, queue: u16) {
    seam::bind(queue.into());
    let _ = rustix::fs::getxattr(at, NOTHING, &mut [0u8; 0][..]);
}

/// What a process does that asks the mount on a directory for something: by its standard input it is told on which processors, and by its standard output it tells what it has
/// done (two bytes each, little endian). Ends with its input.
pub fn look_on(at: &Path) -> Result<()> {
    let mut queue = [0; 2];
    let mut from = std::io::stdin().lock();
    while from.read_exact(&mut queue).is_ok() {
        let at = at.to_owned();
        let look = move || {
            look_once(&at, u16::from_le_bytes(queue));
            let mut to = std::io::stdout().lock();
            let _ = to.write_all(&queue).and_then(|()| to.flush());
        };
        seam::spawn("iov-fuse-look", look)?;
    }
    Ok(())
}
