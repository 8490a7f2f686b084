//! One TLS connection over a socket that never blocks.
//!
//! Reading and writing share the state of TLS, so one at a time has it; nobody waits for the other side meanwhile. What is taken
//! from a writer is encrypted at once and waits here until the socket takes it, at most [`WAITING`] bytes; what is read ahead of
//! a reader is at most [`AHEAD`] and one record.

use std::{
    io::{self, IoSlice, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_store::seam;
use iov_types::{Clause, Error, Result};
use iov_wire::frame::MAGIC;
use rustls::{CertificateError, Connection};

use crate::socket;

/// What both ends of a TLS connection know, and nobody else does, not even who decrypts and encrypts between them.
pub type Exported = [u8; 32];

/// What it is exported for (RFC 5705); never used for anything else.
const PURPOSE: &[u8] = b"EXPORTER-IOVerbs-2026-11-proof";
/// Most bytes that are encrypted before the socket takes them.
const WAITING: usize = 128 << 10;
/// Bytes read of the socket at a time: at first, and where more comes.
const AHEAD: (usize, usize) = (8 << 10, 128 << 10);

/// A TLS connection over a socket.
pub struct Channel {
    fd: OwnedFd,
    state: Mutex<State>,
    /// Something that is encrypted waits for the socket. Changes with the state locked.
    owes: AtomicBool,
}

struct State {
    session: Connection,
    /// Encrypted bytes, from `at` to `end`.
    ahead: Vec<u8>,
    at: usize,
    end: usize,
    /// The last look at the socket filled all of it.
    filled: bool,
    /// Decrypted bytes that wait to be read.
    plain: usize,
    /// The other side has begun to speak TLS.
    begun: bool,
    /// It does not: the last word to it is in the clear.
    clear: bool,
    /// The other side has closed.
    ended: bool,
    /// No more can be read, and why.
    failed: Option<Error>,
    /// No more can be sent: what waits does so in vain.
    lost: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel(…)")
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where encrypted bytes go.
struct Socket<'a> {
    fd: BorrowedFd<'a>,
    failed: Option<Error>,
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match socket::send_some(self.fd, pieces, &[]) {
            Ok(Some(n)) => Ok(n),
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            Err(e) => {
                self.failed = Some(e);
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a failure of TLS is to whoever uses the connection.
fn failure(e: &rustls::Error) -> Error {
    let rustls::Error::InvalidCertificate(why) = e else {
        // It may have been damaged on its way: another connection is tried.
        return Error::unavailable(format!("TLS with the other side failed: {e}"));
    };
    let denied = |what: &str, hint: &str| Error::denied(format!("{what}: {hint}")).with_clause(Clause::A2);
    use CertificateError as C;
    match why {
        C::Expired | C::ExpiredContext { .. } => denied(
            "the certificate of the store's daemon has expired",
            "give the daemon a new one, or name this very one as ?tls=FILE, if its key is still safe",
        ),
        C::NotValidYet | C::NotValidYetContext { .. } => {
            denied("the certificate of the store's daemon is not valid yet", "compare the clocks of the two machines")
        }
        C::NotValidForName | C::NotValidForNameContext { .. } => denied(
            &format!("the certificate of the store's daemon is not for this host ({e})"),
            "use a name in the URL that it is for, or name this very certificate as ?tls=FILE",
        ),
        _ => denied(
            &format!("the certificate of the store's daemon is not to be trusted ({e})"),
            "copy tls.cert from the store's directory, or take the certificate of the CA that has signed the daemon's, and \
             name it in IOVERBS_TLS, or as ?tls=FILE behind the URL; if it is the right one, somebody else listens there",
        ),
    }
}

impl State {
    /// Sends what is encrypted, as far as the socket takes it; how many bytes that were.
    fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<usize> {
        let mut moved = 0;
        let mut socket = Socket { fd, failed: None };
        while self.session.wants_write() {
            match self.session.write_tls(&mut socket) {
                Ok(n) => moved += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.lost = true;
                    return Err(socket.failed.unwrap_or_else(|| Error::internal(format!("TLS: {e}"))));
                }
            }
        }
        Ok(moved)
    }

    fn send_some(&mut self, fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> Result<Option<usize>> {
        if self.clear {
            return socket::send_some(fd, pieces, &[]);
        }
        let moved = self.flush(fd)?;
        if self.session.wants_write() {
            return Ok((moved > 0).then_some(0));
        }
        let taken = self.session.writer().write_vectored(pieces);
        let taken = taken.map_err(|e| Error::internal(format!("TLS takes nothing: {e}")))?;
        self.flush(fd)?;
        Ok((taken > 0).then_some(taken))
    }

    fn receive(&mut self, fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<Option<usize>> {
        let mut got = 0;
        while got < buf.len() {
            if self.plain > 0 {
                // It does not fail as long as there is something.
                let n = self.session.reader().read(&mut buf[got..]).unwrap_or(0);
                self.plain = if n > 0 { self.plain.saturating_sub(n) } else { 0 };
                got += n;
                continue;
            }
            match self.feed(fd) {
                Ok(true) => {}
                Ok(false) if self.ended => return Ok(Some(got)),
                Ok(false) => return Ok((got > 0).then_some(got)),
                // It is told next time.
                Err(_) if got > 0 => return Ok(Some(got)),
                Err(e) => return Err(e),
            }
        }
        Ok(Some(got))
    }

    /// Hands TLS more of what has come; `false`: nothing has. A failure lasts.
    fn feed(&mut self, fd: BorrowedFd<'_>) -> Result<bool> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let fed = self.try_feed(fd);
        if let Err(e) = &fed {
            self.failed = Some(e.clone());
            // Why, if the other side still listens.
            let _ = self.flush(fd);
        }
        fed
    }

    fn try_feed(&mut self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.at == self.end || !self.begun {
            if !self.look(fd)? {
                return Ok(false);
            }
            if !self.begun && !self.begins()? {
                return Ok(true);
            }
        }
        let mut rest = &self.ahead[self.at..self.end];
        let read = self.session.read_tls(&mut rest);
        let read = read.map_err(|e| Error::unavailable(format!("TLS with the other side failed: {e}")))?;
        self.at += read;
        let state = self.session.process_new_packets().map_err(|e| failure(&e))?;
        self.plain = state.plaintext_bytes_to_read();
        // Behind what says so nothing is taken any more. The end of the stream alone ends it as well: each frame says how
        // long it is, so that none can be cut off unseen.
        self.ended = self.plain == 0 && state.peer_has_closed() || read == 0;
        // That it cannot be sent is no reason not to read what has come.
        let _ = self.flush(fd);
        Ok(true)
    }

    /// Receives encrypted bytes; `false`: there are none.
    fn look(&mut self, fd: BorrowedFd<'_>) -> Result<bool> {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        }
        let size = if self.filled && !self.session.is_handshaking() { AHEAD.1 } else { AHEAD.0 };
        if self.ahead.len() < size {
            self.ahead.resize(size, 0);
        }
        match socket::receive_bytes(fd, &mut self.ahead[self.end..], false)? {
            None => return Ok(false),
            Some(0) => {
                self.ended = true;
                return Ok(false);
            }
            Some(n) => self.end += n,
        }
        self.filled = self.end == self.ahead.len();
        Ok(true)
    }

    /// Whether what has come first is TLS; `false`: that cannot be said yet.
    fn begins(&mut self) -> Result<bool> {
        let came = &self.ahead[self.at..self.end];
        if came.starts_with(&MAGIC) {
            self.clear = true;
            return Err(Error::denied(match &self.session {
                Connection::Client(_) => {
                    "the store's daemon does not speak TLS: start it with --tls (iov up --tls self), or take tls= away from \
                     the URL, and IOVERBS_TLS from the environment, if its network is safe"
                }
                Connection::Server(_) => {
                    "the store's daemon speaks TLS only: copy tls.cert from the store's directory, or take the certificate \
                     of the CA that has signed the daemon's, and name it in IOVERBS_TLS, or as ?tls=FILE behind the URL"
                }
            })
            .with_clause(Clause::A2));
        }
        self.begun = !MAGIC.starts_with(came);
        Ok(self.begun)
    }
}

impl Channel {
    /// A connection over which nothing has gone yet.
    pub(super) fn new(fd: OwnedFd, mut session: Connection) -> Channel {
        session.set_buffer_limit(Some(WAITING));
        let state = State {
            session,
            ahead: Vec::new(),
            at: 0,
            end: 0,
            filled: false,
            plain: 0,
            begun: false,
            clear: false,
            ended: false,
            failed: None,
            lost: false,
        };
        Channel { fd, state: Mutex::new(state), owes: AtomicBool::new(false) }
    }

    fn with<T>(&self, does: impl FnOnce(&mut State, BorrowedFd<'_>) -> T) -> T {
        let mut state: MutexGuard<'_, State> = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = does(&mut state, self.fd.as_fd());
        self.owes.store(!state.clear && !state.lost && state.session.wants_write(), Ordering::SeqCst);
        done
    }

    pub(crate) fn send_some(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>> {
        self.with(|state, fd| state.send_some(fd, pieces))
    }

    pub(crate) fn push(&self) -> Result<bool> {
        match self.owes() {
            true => self.with(|state, fd| state.flush(fd)).map(|moved| moved > 0),
            false => Ok(false),
        }
    }

    pub(crate) fn owes(&self) -> bool {
        self.owes.load(Ordering::SeqCst)
    }

    pub(crate) fn holds(&self) -> bool {
        // What may yet turn out to be no TLS waits for what comes behind it, of which the socket tells.
        self.with(|state, _| state.plain > 0 || state.begun && state.at < state.end)
    }

    pub(crate) fn receive(&self, buf: &mut [u8], wait: bool) -> Result<Option<usize>> {
        loop {
            let got = self.with(|state, fd| state.receive(fd, buf))?;
            if got.is_some() || !wait {
                return Ok(got);
            }
            socket::wait_readable(&self.fd, -1);
        }
    }

    /// The client's side: agrees with the daemon, until a time of the monotonic clock.
    pub(crate) fn shake(&self, until_ns: i64) -> Result<()> {
        loop {
            let (fed, agreed) = self.with(|state, fd| {
                state.flush(fd)?;
                let fed = state.feed(fd)?;
                if state.ended {
                    return Err(Error::unavailable(
                        "the store's daemon closed the connection before TLS was agreed on",
                    ));
                }
                state.flush(fd)?;
                Ok((fed, !state.session.is_handshaking() && !state.session.wants_write()))
            })?;
            if agreed {
                return Ok(());
            }
            let left = until_ns - seam::monotonic_ns();
            if left <= 0 {
                return Err(Error::timeout("the store's daemon does not answer; see its log, or end it and try again"));
            }
            match (fed, self.owes()) {
                (true, _) => {}
                (_, true) => socket::wait_for_either(&self.fd, left),
                _ => drop(socket::wait_readable(&self.fd, left)),
            }
        }
    }

    pub(crate) fn exported(&self) -> Result<Exported> {
        self.with(|state, _| state.session.export_keying_material([0; 32], PURPOSE, None))
            .map_err(|e| Error::internal(format!("TLS is not agreed on yet: {e}")))
    }

    /// Makes its keys anew, as TLS does by itself when one has encrypted much.
    #[cfg(test)]
    pub(super) fn refresh(&self) {
        self.with(|state, _| state.session.refresh_traffic_keys()).unwrap();
    }
}
