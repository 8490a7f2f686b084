//! One connection: the handshake, then one verb after the other; answers may come from other threads.

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use iov_net::{
    frames::{Frame, Frames},
    socket,
};
use iov_store::{OpCx, seam};
use iov_types::{Caller, Error, Result, Uuid};
use iov_wire::{
    Body, Header, MAX_VERSION, Verb,
    frame::{self, NO_DEADLINE},
    messages::{Context, Fault},
};

use crate::{Server, peer::Peer, verbs};

/// A connection and what is known of its other side.
pub(crate) struct Connection {
    fd: OwnedFd,
    writing: Mutex<Vec<u8>>,
    /// How long a peer may take nothing of an answer before it is given up.
    patience_ns: i64,
}

/// The session behind a connection, once it has said hello.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) session: Uuid,
    pub(crate) version: u16,
    /// Segments whose descriptors it has, and whether for writing.
    pub(crate) segments: Mutex<BTreeSet<(u64, bool)>>,
}

impl Client {
    /// The context of a request. The peer says which holder it acts for; the catalog checks that it has joined it (X1).
    pub(crate) fn cx(&self, context: &Context, header: &Header) -> OpCx {
        let holder = if context.holder.is_nil() { self.session } else { context.holder };
        let caller =
            Caller { uid: self.peer.uid, gid: self.peer.gid, groups: Vec::new(), session: self.session, holder };
        let left = match header.deadline_left_ns {
            NO_DEADLINE => i64::MAX,
            left => left.min(i64::MAX as u64) as i64,
        };
        OpCx { batch: context.batch, ..OpCx::new(caller, left) }
    }
}

impl Connection {
    pub(crate) fn new(fd: OwnedFd, patience_ns: i64) -> Connection {
        Connection { fd, writing: Mutex::default(), patience_ns }
    }

    /// Takes no more requests: those that have arrived are still answered.
    pub(crate) fn drain(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Read);
    }

    /// Ends it from another thread.
    pub(crate) fn shut(&self) {
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }

    /// Sends an answer. A peer that has gone does not need it, and its reading thread sees the end.
    pub(crate) fn answer<B: Body>(
        &self,
        version: u16,
        request: u64,
        body: &B,
        payload: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) {
        let payload_len = payload.iter().map(|p| p.len() as u64).sum();
        let header = Header { version, payload_len, ..Header::new(B::VERB, request) };
        let mut out = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        out.clear();
        if let Err(error) = frame::append(header, body, &mut out) {
            out.clear();
            let fault = Fault { error };
            if frame::append(Header { payload_len: 0, ..header }, &fault, &mut out).is_ok() {
                self.send(&[&out], &[]);
            }
            return;
        }
        let mut parts: Vec<&[u8]> = vec![&out];
        parts.extend(payload);
        self.send(&parts, fds);
    }

    fn send(&self, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) {
        let until = seam::monotonic_ns().saturating_add(self.patience_ns);
        let _ = socket::send(&self.fd, parts, fds, || {
            // It must not keep this thread for ever, nor whoever else has an answer for it.
            if seam::monotonic_ns() > until {
                self.shut();
            }
            true
        });
    }

    pub(crate) fn fault(&self, version: u16, request: u64, error: Error) {
        self.answer(version, request, &Fault { error }, &[], &[]);
    }

    /// Tells a peer that it is not let in.
    pub(crate) fn refuse(&self, error: &Error) {
        self.fault(MAX_VERSION, 0, error.clone());
    }

    /// Serves until the peer goes, or breaks the protocol.
    pub(crate) fn serve(self: &Arc<Self>, server: &Arc<Server>) {
        let mut frames = Frames::without_descriptors();
        let client = match self.greet(server, &mut frames) {
            Ok(client) => Arc::new(client),
            Err(e) => return self.refuse(&e),
        };
        let mut back = false;
        loop {
            match frames.next(self.fd.as_fd(), true) {
                Ok(Some(frame)) => {
                    let request = frame.header.request;
                    // A session that comes back first says what it had: until it has, nothing of that is given up.
                    if !back && frame.header.verb() != Ok(Verb::Resume) {
                        back = true;
                        server.came_back(client.session);
                    }
                    match self.handle(server, &client, frame) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(e) => self.fault(client.version, request, e),
                    }
                }
                Ok(None) => {}
                Err(e) if e.kind() == iov_types::Kind::Unavailable => break,
                Err(e) => {
                    self.refuse(&e);
                    break;
                }
            }
        }
        server.session_ends(client.session);
    }

    fn greet(&self, server: &Arc<Server>, frames: &mut Frames) -> Result<Client> {
        let peer = Peer::of(&self.fd, server.options.owner)?;
        // Whoever connects and says nothing must not hold a thread for ever.
        let until = seam::monotonic_ns() + 10_000_000_000;
        let frame = loop {
            if let Some(frame) = frames.next(self.fd.as_fd(), false)? {
                break frame;
            }
            if server.is_stopping() || seam::monotonic_ns() > until {
                return Err(Error::unavailable("no hello came"));
            }
            // A stop ends the receiving side, which is readable then: thousands that wait here cost nothing.
            socket::wait_readable(&self.fd, (until - seam::monotonic_ns()).max(0));
        };
        verbs::hello::greet(self, server, peer, &frame)
    }

    /// `false`: the peer said goodbye.
    fn handle(self: &Arc<Self>, server: &Arc<Server>, client: &Arc<Client>, frame: Frame) -> Result<bool> {
        server.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match frame.header.verb()? {
            Verb::Catalog => verbs::catalog::run(self, server, client, &frame)?,
            Verb::Object => verbs::object::run(self, server, client, &frame)?,
            Verb::Grant => verbs::grant::run(self, server, client, &frame)?,
            Verb::Sums => verbs::sums::run(self, server, client, &frame)?,
            Verb::GiveBack => verbs::give_back::run(server, client, &frame)?,
            Verb::Renew => verbs::renew::run(self, server, client, &frame)?,
            Verb::Status => verbs::status::run(self, server, client, &frame)?,
            Verb::Resume => verbs::resume::run(self, server, client, &frame)?,
            Verb::Shutdown => verbs::shutdown::run(self, server, client, &frame)?,
            Verb::Goodbye => return Ok(false),
            verb => {
                return Err(Error::version(format!("a client does not send {}", verb.name())));
            }
        }
        Ok(true)
    }
}
