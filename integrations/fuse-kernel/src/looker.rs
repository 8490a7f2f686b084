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

/// What the process tells first: that it is there. No processor has that number.
const HERE: u16 = u16::MAX;
/// How long it may take to say so, in nanoseconds.
const PATIENCE_NS: i64 = 5_000_000_000;
/// How long one lives at least that works, and how long it takes at first, and at last, until a program that does not is tried again.
const FIRST_PAUSE_NS: i64 = 1_000_000_000;
const LAST_PAUSE_NS: i64 = 600_000_000_000;
/// What is under way to one queue at most: all of it lies in the pipe, so that nobody waits for the process.
const MOST: usize = 32;

/// What is known of the process.
#[derive(Default)]
struct Known {
    /// What is under way by queues.
    under_way: HashMap<u16, Vec<Looking>>,
    /// It has said that it is there, and has looked.
    is_there: bool,
    has_looked: bool,
    ended_ns: Option<i64>,
}

impl Known {
    fn tells(&mut self, what: u16) {
        self.is_there = true;
        if let Some(looks) = self.under_way.get_mut(&what) {
            self.has_looked |= looks.pop().is_some();
        }
    }

    fn ends(&mut self) {
        self.ended_ns.get_or_insert_with(seam::monotonic_ns);
    }

    /// Whether it did what it is there for, until it ended.
    fn has_worked(&self) -> bool {
        self.is_there && (self.has_looked || self.under_way.values().all(Vec::is_empty))
    }
}

/// The process, while there is one.
struct Running {
    to: ChildStdin,
    begun_ns: i64,
    known: Arc<Mutex<Known>>,
}

impl Running {
    /// It may be no program that looks.
    fn is_late(&self, known: &Known) -> bool {
        !known.is_there && seam::monotonic_ns().saturating_sub(self.begun_ns) > PATIENCE_NS
    }

    /// Has it look. `false`: it has ended, or never begun.
    fn look(&mut self, crew: &Crew, queue: u16) -> bool {
        let mut known = lock(&self.known);
        if known.ended_ns.is_some() || self.is_late(&known) {
            return false;
        }
        let looks = known.under_way.entry(queue).or_default();
        if looks.len() >= MOST {
            // Those will do.
            return true;
        }
        looks.push(crew.looks());
        if self.to.write_all(&queue.to_le_bytes()).is_err() {
            looks.pop();
            known.ends();
        }
        known.ended_ns.is_none()
    }
}

/// When the program is started again.
#[derive(Default)]
pub(crate) struct Starts {
    pause_ns: i64,
    next_ns: i64,
}

impl Starts {
    pub(crate) fn is_due(&self, now_ns: i64) -> bool {
        now_ns >= self.next_ns
    }

    /// A process has ended that lived so long, and has worked until then or not.
    pub(crate) fn ended(&mut self, ended_ns: i64, lived_ns: i64, has_worked: bool) {
        let is_good = has_worked && lived_ns >= FIRST_PAUSE_NS;
        self.pause_ns = if is_good { 0 } else { (self.pause_ns * 2).clamp(FIRST_PAUSE_NS, LAST_PAUSE_NS) };
        self.next_ns = ended_ns.saturating_add(self.pause_ns);
    }
}

#[derive(Default)]
struct Process {
    running: Option<Running>,
    starts: Starts,
}

impl Process {
    /// Whether there is none, and one is to be started.
    fn is_wanted(&mut self) -> bool {
        if let Some(process) = &self.running {
            let mut known = lock(&process.known);
            let Some(ended_ns) = known.ended_ns else {
                if process.is_late(&known) {
                    known.under_way.clear();
                }
                return false;
            };
            self.starts.ended(ended_ns, ended_ns.saturating_sub(process.begun_ns), known.has_worked());
            // Its queues are looked at again.
            known.under_way.clear();
        }
        self.running = None;
        self.starts.is_due(seam::monotonic_ns())
    }
}

/// Asks for something on each queue.
pub(crate) struct Looker {
    at: PathBuf,
    program: Option<Box<dyn Fn() -> Command + Send + Sync>>,
    process: Mutex<Process>,
}

impl Looker {
    /// Of the mount on a directory; `program`: what makes the process that does it.
    pub(crate) fn new(at: &Path, program: Option<Box<dyn Fn() -> Command + Send + Sync>>) -> Looker {
        Looker { at: at.to_owned(), program, process: Mutex::default() }
    }

    /// Starts the process, where there is none and it is time, before anything waits for what it is to do: a child that has a file of the mount open until it runs its program may
    /// wait for that itself. Only who watches does so: queues are to go on meanwhile.
    pub(crate) fn begin(&self) {
        let Some(program) = self.program.as_ref().filter(|_| lock(&self.process).is_wanted()) else { return };
        let started = start(program());
        let mut process = lock(&self.process);
        match started {
            Ok(running) => process.running = Some(running),
            Err(_) => process.starts.ended(seam::monotonic_ns(), 0, false),
        }
    }

    /// Has a queue given something to answer, without waiting for that. Where there is no process that works, a thread of this one is better than nothing.
    pub(crate) fn look(&self, crew: &Crew, queue: u16) {
        if !self.has_looked_at(crew, queue) {
            self.look_here(crew, queue);
        }
    }

    /// The same, by who watches.
    pub(crate) fn watch(&self, crew: &Crew, queue: u16) {
        if !self.has_looked_at(crew, queue) {
            // It may just have ended.
            self.begin();
            self.look(crew, queue);
        }
    }

    fn has_looked_at(&self, crew: &Crew, queue: u16) -> bool {
        lock(&self.process).running.as_mut().is_some_and(|process| process.look(crew, queue))
    }

    /// By a thread of this process. It keeps none of its descriptors at least.
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
    let begun_ns = seam::monotonic_ns();
    let mut child = seam::unbound(|| program.spawn())?;
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("a process without the pipes that it was asked for with"));
    };
    let known = Arc::<Mutex<Known>>::default();
    let tell = known.clone();
    seam::spawn("iov-fuse-looks", move || hear(child, from, &tell))?;
    Ok(Running { to, begun_ns, known })
}

/// Hears what it has done, until it ends.
fn hear(mut child: Child, mut from: ChildStdout, known: &Mutex<Known>) {
    let mut what = [0; 2];
    while from.read_exact(&mut what).is_ok() {
        lock(known).tells(u16::from_le_bytes(what));
    }
    lock(known).ends();
    let _ = child.wait();
}

/// Asks the mount for what nothing has, on the processor of a queue. Where that is not this process's to use, it comes to another queue.
fn look_once(at: &Path, queue: u16) {
    seam::bind(queue.into());
    let _ = rustix::fs::getxattr(at, NOTHING, &mut [0u8; 0][..]);
}

/// What a process does that asks the mount on a directory for something: by its standard input it is told on which processors, and by its standard output it tells that it is
/// there, and then what it has done (two bytes each, little endian). Ends with its input.
pub fn look_on(at: &Path) -> Result<()> {
    let mut queue = [0; 2];
    let mut from = std::io::stdin().lock();
    tell(HERE)?;
    while from.read_exact(&mut queue).is_ok() {
        let (at, queue) = (at.to_owned(), u16::from_le_bytes(queue));
        let look = move || {
            look_once(&at, queue);
            let _ = tell(queue);
        };
        seam::spawn("iov-fuse-look", look)?;
    }
    Ok(())
}

fn tell(what: u16) -> Result<()> {
    let mut to = std::io::stdout().lock();
    to.write_all(&what.to_le_bytes())?;
    to.flush()
}

#[cfg(test)]
mod tests;
