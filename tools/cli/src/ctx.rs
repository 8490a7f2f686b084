//! What a command works with: its options, its streams, the session it opens on first use.

use std::io::Read;

use ioverbs::{BatchAttr, Error, Kind, Lent, Priority, Session, SessionAttr, Status, Which, Workspace};

use crate::{
    address::Address,
    failure::{Done, Failure, Next},
    interrupt::Interrupt,
    options::Global,
    output::{JsonList, Out, quoted},
    progress::Progress,
    quantity,
};

/// The surroundings of one command.
pub(crate) struct Ctx {
    /// Options that hold for every command.
    pub(crate) global: Global,
    /// Standard output.
    pub(crate) out: Out,
    /// Standard error.
    pub(crate) err: Out,
    /// Whether it is time to stop.
    pub(crate) stop: Interrupt,
    stdin: Option<Box<dyn Read + Send>>,
    session: Option<Session>,
    /// Of a store that is read without its daemon: where its bytes are.
    pub(crate) place: Option<std::path::PathBuf>,
    /// The first of several failures that were told when they happened.
    failed: Option<Kind>,
}

impl Ctx {
    /// Nothing is opened yet.
    pub(crate) fn new(global: Global, out: Out, err: Out, stdin: Box<dyn Read + Send>, stop: Interrupt) -> Ctx {
        Ctx { global, out, err, stop, stdin: Some(stdin), session: None, place: None, failed: None }
    }

    /// The session, opened by the first who asks. The store must be there: who mistypes a directory wants to hear of it,
    /// and who only looks leaves nothing behind.
    pub(crate) fn session(&mut self) -> Done<Session> {
        if self.session.is_none()
            && self.global.offline.is_none()
            && let Some(dir) = self.url()?.strip_prefix("file:")
            && ["format", "storage"].iter().all(|mark| is_missing(&std::path::Path::new(dir).join(mark)))
        {
            let path = std::path::Path::new(dir);
            if dir.is_empty() {
                return Err(Error::invalid("file: names no directory, as in file:/scratch/me/store").into());
            }
            let dir = crate::output::printable(dir.as_bytes());
            if path.exists() && !path.is_dir() {
                return Err(Error::invalid(format!("{dir} is not a directory, as a store in files is")))
                    .next(|| "name the directory of a store: -S file:DIR".into());
            }
            let named =
                self.global.store.is_some() || std::env::var_os("IOVERBS_URL").is_some_and(|url| !url.is_empty());
            let why = match named {
                true => format!("there is no store in {dir}"),
                false => format!("you have no store yet: there is none in {dir}"),
            };
            return Err(Error::not_found(why))
                .next(|| "iov ws create NAME makes one, or name another: -S file:DIR".into());
        }
        self.session_or_new()
    }

    /// The session on the store that addresses name, if they name one.
    pub(crate) fn session_of(&mut self, addresses: &[Address]) -> Done<Session> {
        addresses.iter().try_for_each(|address| self.use_store(address))?;
        self.session()
    }

    /// The same, and where there is no store yet one is made.
    pub(crate) fn session_or_new(&mut self) -> Done<Session> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let deadline_ns = self.timeout_ns()?;
        let priority = if self.global.background { Priority::Background } else { Priority::Foreground };
        let attr = SessionAttr { deadline_ns, priority, program: Some("iov".into()), ..SessionAttr::default() };
        let session = match &self.global.offline {
            Some(dir) => {
                let offline = iov_offline::open(dir, attr)?;
                self.place = offline.place;
                offline.session
            }
            None => ioverbs::open(self.global.store.as_deref(), attr)?,
        };
        self.session = Some(session.clone());
        if session.url().starts_with("mem:") && self.err.is_terminal() && !self.global.quiet {
            self.warn("a mem: store ends with this command, and what is stored in it with it; file:DIR stays");
        }
        Ok(session)
    }

    /// What one request may take.
    pub(crate) fn timeout_ns(&self) -> Done<i64> {
        match quantity::read_span(&self.global.timeout)? {
            0 => Err(Error::invalid("--timeout 0: nothing can be done in no time").into()),
            ns => Ok(ns),
        }
    }

    /// The session, if a command has opened one.
    pub(crate) fn opened(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// The URL of the store.
    pub(crate) fn url(&self) -> Done<String> {
        match (&self.global.offline, &self.global.store) {
            (Some(dir), _) => Ok(format!("file:{}", dir.display())),
            (None, Some(url)) => Ok(url.clone()),
            (None, None) => Ok(ioverbs::default_url()?),
        }
    }

    /// Takes the store from an address that names one.
    pub(crate) fn use_store(&mut self, address: &Address) -> Done {
        let Some(store) = &address.store else { return Ok(()) };
        if self.global.offline.is_some() {
            return Err(Error::invalid(format!("{address} names a store, and --offline names another one")).into());
        }
        match &self.global.store {
            None if self.session.is_none() => self.global.store = Some(store.clone()),
            Some(chosen) if chosen == store => {}
            _ => {
                let other = self.url()?;
                return Err(Error::invalid(format!(
                    "{address} is in another store than {other}: one store per command"
                ))
                .into());
            }
        }
        Ok(())
    }

    /// Opens the workspace of an address.
    pub(crate) fn workspace(&mut self, address: &Address) -> Done<Workspace> {
        self.use_store(address)?;
        let session = self.session()?;
        match session.load_workspace(address.workspace.clone()) {
            Err(e) if e.kind() == Kind::NotFound => Err(self.no_workspace(&session, address, e)),
            loaded => Ok(loaded?),
        }
    }

    fn no_workspace(&mut self, session: &Session, address: &Address, error: Error) -> Failure {
        let name = address.workspace_quoted();
        let is_place = matches!(&address.workspace, Which::Name(name) if matches!(name.as_bytes(), b"." | b".."));
        let next = match crate::locate::nearest_workspace(session, &address.workspace) {
            Some(near) => format!("did you mean {}? `iov ws list` shows all", quoted(near.as_bytes())),
            // A directory of this machine was meant, as cp takes one.
            None if is_place => "name a workspace; `iov ws list` shows all".into(),
            None if matches!(address.workspace, Which::Name(_)) => format!("iov ws create {name}"),
            None => "iov ws list".into(),
        };
        Failure::Error { error: Box::new(error), next: Some(next) }
    }

    /// Standard input; it can be read once.
    pub(crate) fn stdin(&mut self) -> Done<Box<dyn Read + Send>> {
        self.stdin.take().ok_or_else(|| Error::invalid("standard input can be read once: give '-' once").into())
    }

    /// Runs operations on borrowed memory to their end; failures are in the statuses.
    pub(crate) fn batch(&mut self, ops: Vec<Lent<'_>>) -> Done<Vec<Status>> {
        let session = self.session()?;
        Ok(ioverbs::run_batch(&session, BatchAttr::default(), ops)?)
    }

    /// A progress bar, where a person would see it.
    pub(crate) fn progress(&self, what: &str, total: Option<u64>) -> Progress {
        let seen = self.err.is_terminal() && !self.global.quiet && !self.global.json;
        Progress::new(seen, what, total)
    }

    /// Tells of a failure of one of several things; the command goes on and fails at its end.
    pub(crate) fn tell(&mut self, failure: Failure) -> Done {
        match failure {
            // Whoever interrupts does not want the rest.
            Failure::Error { error, next } if error.kind() == Kind::Cancelled => Err(Failure::Error { error, next }),
            Failure::Error { error, next } => {
                self.failed.get_or_insert(error.kind());
                crate::app::print_error(self, &error, next.as_deref());
                Ok(())
            }
            Failure::Told(kind) => {
                self.failed.get_or_insert(kind);
                Ok(())
            }
            other @ (Failure::Elsewhere(_) | Failure::Pipe) => Err(other),
        }
    }

    /// Says something that is no failure.
    pub(crate) fn warn(&mut self, text: impl std::fmt::Display) {
        // Where nobody can be warned there is nothing else to do.
        let _ = self.err.line(format_args!("iov: warning: {text}"));
    }

    /// Says how it went, to a person who waits.
    pub(crate) fn summary(&mut self, text: impl std::fmt::Display) {
        if self.err.is_terminal() && !self.global.quiet && !self.global.json {
            let _ = self.err.line(text);
        }
    }

    /// Ends a list of `--json`. One that is empty because all failed is not written: an empty list says that there is
    /// nothing, and that is not known.
    pub(crate) fn end_list(&mut self, list: &JsonList) -> Done {
        if list.is_empty() && self.failed.is_some() { Ok(()) } else { list.end(&mut self.out) }
    }

    /// The end of a command that went on after failures.
    pub(crate) fn end(&mut self) -> Done {
        match self.failed.take() {
            Some(kind) => Err(Failure::Told(kind)),
            None => Ok(()),
        }
    }
}

/// Whether a file is certainly not there: one that this user may not look for may well be.
fn is_missing(path: &std::path::Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    path.metadata().is_err_and(|e| matches!(e.kind(), NotFound | NotADirectory))
}
