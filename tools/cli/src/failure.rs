//! How a command fails: an error of the library with a next step, or a reader of our output that has gone.

use ioverbs::{Error, Kind};

/// Why a command did not do all of its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed.
    Error {
        /// What happened.
        error: Box<Error>,
        /// What to do, in more detail than the error itself knows.
        next: Option<String>,
    },
    /// Each failure was told when it happened; the first one decides on the exit code.
    Told(Kind),
    /// Another process has told of it, and ended with this code.
    Elsewhere(u8),
    /// Nobody reads our output any more.
    Pipe,
}

/// The end of a command.
pub(crate) type Done<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error { error: Box::new(error), next: None }
    }
}

impl From<ioverbs::Refusal> for Failure {
    fn from(refusal: ioverbs::Refusal) -> Failure {
        let offer = refusal.offer_text().to_owned();
        let next = (!offer.is_empty()).then(|| format!("ask for what can be had: -c '{offer}'"));
        Failure::Error { error: Box::new(refusal.error), next }
    }
}

impl Failure {
    /// The kind of the error, where there is one.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Failure::Error { error, .. } => Some(error.kind()),
            Failure::Told(kind) => Some(*kind),
            Failure::Elsewhere(_) | Failure::Pipe => None,
        }
    }

    /// The same failure, what it is about put in front.
    pub(crate) fn about(self, what: impl std::fmt::Display) -> Failure {
        match self {
            Failure::Error { error, next } => Failure::Error { error: Box::new(error.context(what)), next },
            other => other,
        }
    }

    /// The exit code, after sysexits.
    pub(crate) fn code(&self) -> u8 {
        match self {
            // As a program that SIGPIPE ends.
            Failure::Pipe => 141,
            Failure::Error { error, .. } => code(error.kind()),
            Failure::Told(kind) => code(*kind),
            Failure::Elsewhere(code) => *code,
        }
    }
}

/// A next step for an error.
pub(crate) trait Next<T> {
    /// Adds what to do now.
    fn next(self, step: impl FnOnce() -> String) -> Done<T>;
}

impl<T, E: Into<Failure>> Next<T> for Result<T, E> {
    fn next(self, step: impl FnOnce() -> String) -> Done<T> {
        self.map_err(|e| match e.into() {
            Failure::Error { error, next } => Failure::Error { error, next: next.or_else(|| Some(step())) },
            other => other,
        })
    }
}

/// The code of a command line that cannot be read.
pub(crate) const USAGE: u8 = 64;
/// The code of a command that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code of a kind, after sysexits.
pub(crate) fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => USAGE,
        Kind::Corrupt => 65,
        Kind::NotFound | Kind::Lost => 66,
        Kind::Refused | Kind::Unsupported | Kind::Unavailable => 69,
        Kind::Forked | Kind::Internal => 70,
        Kind::Exists | Kind::NotEmpty | Kind::Exhausted | Kind::FileTooBig | Kind::TooBig => 73,
        Kind::Conflict | Kind::Busy | Kind::Stale | Kind::Fenced | Kind::Timeout | Kind::Partial => 75,
        Kind::Version => 76,
        Kind::Denied | Kind::Immutable => 77,
        Kind::Cancelled => INTERRUPTED,
    }
}

/// A local file that could not be used, with its name.
pub(crate) fn local(what: &str, path: &std::path::Path, e: std::io::Error) -> Error {
    Error::from(e).context(format!("{what} {}", path.display()))
}
