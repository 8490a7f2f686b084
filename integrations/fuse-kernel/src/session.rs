//! A mounted file system and the threads that serve it.

use std::{
    io::{Error, Result},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use iov_store::seam;

use crate::{
    abi::{IN_HEADER, op},
    crew::{Crew, Interrupts, Pulse, SPARE, lock},
    device::Kernel,
    dispatch::{self, Header},
    fields::Fields,
    filesystem::Filesystem,
    handshake::{Asked, Granted, REQUEST, shake_hands},
    looker::Looker,
    mounting::{self, Missing, MountTable, Switch},
    ring,
    watch::{self, Watched},
};

/// Whether requests go by rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rings {
    /// Where the kernel lets them. Root switches that on (`fuse.enable_uring`) for the moment of mounting.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always: where they cannot be had nothing is mounted.
    On,
}

struct Shared<F> {
    fs: F,
    at: PathBuf,
    looker: Looker,
    kernel: Kernel,
    device: OnceLock<Crew>,
    queues: OnceLock<Vec<Crew>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads that serve, and who starts the first ones.
    alive: AtomicUsize,
    has_ended: AtomicBool,
    given_up: AtomicBool,
    failed: Mutex<Option<Error>>,
}

/// A file system that is mounted; dropping it unmounts it.
pub struct Session {
    served: Option<Box<dyn Served>>,
    at: PathBuf,
    kernel: Kernel,
    granted: Granted,
}

trait Served: Send + Sync {
    fn has_ended(&self) -> bool;
    fn join(&self) -> Result<()>;
}

impl Session {
    /// Mounts on a directory and begins to serve it. What lies there is hidden meanwhile. Of what is asked of the kernel, `rings` says whether requests go by
    /// rings.
    pub fn mount<F: Filesystem>(fs: F, at: &Path, table: &MountTable, asked: Asked, rings: Rings) -> Result<Session> {
        let asked = Asked { rings: false, ..asked };
        let queues = if rings == Rings::Off { None } else { ring::queues() };
        if let Some(queues) = queues {
            let (fs, e) = match attempt(fs, at, table, asked, Some(queues)) {
                Ok(session) if session.granted.rings || rings == Rings::Auto => return Ok(session),
                Ok(session) => {
                    drop(session);
                    return Err(no_rings());
                }
                Err(failed) => failed,
            };
            // Without rings it may be different.
            return match fs {
                Some(fs) if rings == Rings::Auto => attempt(fs, at, table, asked, None).map_err(|(_, e)| e),
                _ => Err(e),
            };
        }
        if rings == Rings::On {
            return Err(no_rings());
        }
        attempt(fs, at, table, asked, None).map_err(|(_, e)| e)
    }

    /// What the kernel has agreed to.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// The kernel, to tell it something.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Waits until somebody has unmounted it.
    pub fn join(mut self) -> Result<()> {
        self.served.take().map_or(Ok(()), |served| served.join())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(served) = self.served.take() else { return };
        // Whoever is in it keeps it until they leave.
        if !served.has_ended() && mounting::unmount(&self.at, false).is_err() {
            let _ = mounting::unmount(&self.at, true);
            return;
        }
        let _ = served.join();
    }
}

fn no_rings() -> Error {
    Missing::error(
        std::io::ErrorKind::Unsupported,
        "requests cannot go by rings: that takes Linux 6.14, io_uring for this process, and fuse.enable_uring, which root switches on: \
         echo Y > /sys/module/fuse/parameters/enable_uring",
        "leave io_uring out of the options, or have it switched on",
    )
}

type Failed<F> = (Option<F>, Error);

/// Mounts and begins to serve. What fails after it was mounted gives the file system back, where nothing has it any more.
fn attempt<F: Filesystem>(
    mut fs: F,
    at: &Path,
    table: &MountTable,
    asked: Asked,
    queues: Option<u16>,
) -> std::result::Result<Session, Failed<F>> {
    let asked = Asked { rings: queues.is_some(), ..asked };
    let switch = asked.rings.then(Switch::on);
    let device = match mounting::mount(at, table) {
        Ok(device) => device,
        Err(e) => return Err((None, e)),
    };
    let kernel = Kernel(Arc::new(device));
    let granted = match shake_hands(&kernel, asked) {
        Ok(granted) => granted,
        Err(e) => {
            mounting::give_up(at);
            return Err((Some(fs), e));
        }
    };
    fs.start(&kernel, granted);
    let looker = Looker::new(at, fs.looks_by(at));
    let shared = Arc::new(Shared {
        fs,
        at: at.to_owned(),
        looker,
        kernel: kernel.clone(),
        device: OnceLock::new(),
        queues: OnceLock::new(),
        threads: Mutex::default(),
        alive: AtomicUsize::new(1),
        has_ended: AtomicBool::new(false),
        given_up: AtomicBool::new(false),
        failed: Mutex::default(),
    });
    let queues = queues.filter(|_| granted.rings).unwrap_or(0);
    if let Err(e) = Shared::begin(&shared, granted, queues) {
        shared.give_up();
        shared.join_threads();
        return Err((Arc::into_inner(shared).map(|shared| shared.fs), e));
    }
    drop(switch);
    if queues > 0 {
        watch::begin(Arc::downgrade(&shared));
    }
    shared.is_gone();
    Ok(Session { served: Some(Box::new(shared)), at: at.to_owned(), kernel, granted })
}

impl<F: Filesystem> Shared<F> {
    /// Starts the first threads.
    fn begin(this: &Arc<Shared<F>>, granted: Granted, queues: u16) -> Result<()> {
        let interrupts = Arc::new(Interrupts::default());
        let weak = Arc::downgrade(this);
        let hire = weak.clone();
        let hire = move || hire.upgrade().is_some_and(|shared| Shared::hire_at_device(&shared).is_ok());
        let longer = granted.setxattr_longer;
        let _ = this.device.set(Crew::new(interrupts.clone(), longer, hire));
        let at_queue = |queue| {
            let weak = weak.clone();
            let hire = move || weak.upgrade().is_some_and(|shared| Shared::hire_at(&shared, queue, |_| {}).is_ok());
            Crew::new(interrupts.clone(), longer, hire)
        };
        let _ = this.queues.set((0..queues).map(at_queue).collect());
        let (tell, told) = mpsc::channel();
        for queue in (0..queues).flat_map(|queue| [queue; SPARE]) {
            let tell = tell.clone();
            Shared::hire_at(this, queue, move |started| _ = tell.send(started))?;
        }
        drop(tell);
        // Requests wait until each queue has somebody.
        told.iter().collect::<Result<()>>()?;
        (0..SPARE).try_for_each(|_| Shared::hire_at_device(this))
    }

    fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    fn hire_at_device(this: &Arc<Shared<F>>) -> Result<()> {
        let Some(crew) = this.device.get() else { return Ok(()) };
        this.begins(crew);
        let shared = this.clone();
        let thread = seam::spawn("iov-fuse", move || {
            let Some(crew) = shared.device.get() else { return };
            crew.is_ready();
            let served = serve_device(&shared.fs, &shared.kernel, crew);
            crew.leaves();
            if served.is_ok() {
                shared.has_ended.store(true, Ordering::Release);
                crew.interrupts().interrupt_all();
            }
            shared.ends(served);
        });
        this.keep(thread.inspect_err(|_| this.never_began(crew))?);
        Ok(())
    }

    fn at_queue(&self, queue: u16) -> Option<&Crew> {
        self.queues.get()?.get(usize::from(queue))
    }

    fn hire_at(this: &Arc<Shared<F>>, queue: u16, started: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let Some(crew) = this.at_queue(queue) else { return Ok(()) };
        this.begins(crew);
        let shared = this.clone();
        let thread = ring::spawn(queue, move || {
            let Some(crew) = shared.at_queue(queue) else { return };
            let serve = || ring::serve((&shared.fs, &shared.kernel, crew), (queue, &shared.looker), started);
            let served =
                catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| Err(Error::other("a thread panicked")));
            if served.is_err() {
                // What came that way would wait for ever: better that programs hear of it.
                shared.give_up();
            }
            shared.ends(served);
        });
        this.keep(thread.inspect_err(|_| this.never_began(crew))?);
        Ok(())
    }

    fn begins(&self, crew: &Crew) {
        self.alive.fetch_add(1, Ordering::AcqRel);
        crew.comes();
    }

    fn never_began(&self, crew: &Crew) {
        crew.stays_away();
        self.is_gone();
    }

    fn ends(&self, served: Result<()>) {
        if let Err(e) = served {
            lock(&self.failed).get_or_insert(e);
        }
        self.is_gone();
    }

    /// One less of those that serve. Only they start others: the last one is the last.
    fn is_gone(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fs.end();
        }
    }

    /// Has the kernel give it up, once: what somebody mounts there later is none of this.
    fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            mounting::give_up(&self.at);
        }
    }

    fn join_threads(&self) {
        // More may come while some are still serving.
        loop {
            let Some(thread) = lock(&self.threads).pop() else { return };
            let _ = thread.join();
        }
    }
}

impl<F: Filesystem> Watched for Shared<F> {
    fn begin(&self) {
        self.looker.begin();
    }

    fn look(&self, queue: u16) {
        if let Some(crew) = self.at_queue(queue) {
            self.looker.watch(crew, queue);
        }
    }

    fn pulses(&self) -> Option<Vec<Pulse>> {
        let is_over = self.has_ended.load(Ordering::Acquire) || self.given_up.load(Ordering::Acquire);
        let queues = self.queues.get().filter(|_| !is_over && self.alive.load(Ordering::Acquire) > 0)?;
        Some(queues.iter().map(Crew::pulse).collect())
    }
}

impl<F: Filesystem> Served for Arc<Shared<F>> {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn join(&self) -> Result<()> {
        self.join_threads();
        // Who watches has it for a moment: what the file system does at its end comes before the end of the program.
        for _ in 0..1000 {
            if Arc::strong_count(self) == 1 {
                break;
            }
            seam::sleep(1_000_000);
        }
        lock(&self.failed).take().map_or(Ok(()), Err)
    }
}

/// Takes requests by calls of the system until the directory is unmounted.
fn serve_device<F: Filesystem>(fs: &F, kernel: &Kernel, crew: &Crew) -> Result<()> {
    // The largest request: its header, its structure and its bytes.
    let (mut taken, mut room) = (vec![0; REQUEST + 4096], vec![0; REQUEST]);
    while let Some(len) = kernel.receive(&mut taken)? {
        let request = &taken[..len];
        let Ok(header) = Header::read(request) else { continue };
        let body = request.get(IN_HEADER..header.len as usize).unwrap_or_default();
        let _busy = crew.busy();
        if is_told(fs, crew, &header, body) {
            continue;
        }
        let answered = dispatch::split(header.opcode, crew.setxattr_longer, body)
            .and_then(|parts| dispatch::answer(fs, &header.of(crew), header.opcode, parts, &mut room));
        let sent = match answered {
            Ok(len) => kernel.send(header.unique, 0, &room[..len]),
            Err(e) => kernel.send(header.unique, -e, &[]),
        };
        // Whoever has asked may have been killed, or the directory unmounted.
        drop(sent);
    }
    Ok(())
}

/// Does what is only told, and wants no answer.
fn is_told<F: Filesystem>(fs: &F, crew: &Crew, header: &Header, body: &[u8]) -> bool {
    let mut body = Fields(body);
    match header.opcode {
        op::FORGET => {
            if let Ok(times) = body.u64() {
                fs.forget(header.node(), times);
            }
        }
        op::BATCH_FORGET => {
            let count = body.u32().and_then(|count| body.u32().map(|_| count)).unwrap_or(0);
            for _ in 0..count {
                let (Ok(node), Ok(times)) = (body.u64(), body.u64()) else { break };
                fs.forget(node, times);
            }
        }
        op::INTERRUPT => {
            if let Ok(unique) = body.u64() {
                crew.interrupts().interrupt(unique);
            }
        }
        _ => return false,
    }
    true
}
