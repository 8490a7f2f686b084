//! The first frames of a connection: who the client is, that both sides have the store's secret where the kernel does not
//! tell who is there, and which version they speak.

use std::os::fd::OwnedFd;

use iov_store::{End, Rings, seam};
use iov_types::{Clause, Error, Result};
use iov_wire::{
    Body, Header, Verb, frame,
    messages::{Challenge, Fault, Hello, Proof, Welcome},
};

use crate::{
    frames::{Frame, Frames},
    secret::{Secret, Side},
    socket,
    stream::Stream,
    tcp,
};

/// By what a client knows whom it talks to.
#[derive(Clone, Debug)]
pub enum Trust {
    /// A socket in the store's directory: whoever listens there may do so.
    Directory,
    /// The daemon has the same secret.
    Secret(Secret),
    /// By nothing: the user has said so.
    Anybody,
}

/// A connection that both sides have agreed on.
pub(crate) struct Shaken {
    pub(crate) stream: Stream,
    pub(crate) frames: Frames,
    pub(crate) welcome: Welcome,
    /// The session's lease page; none over a network.
    pub(crate) page: Option<OwnedFd>,
}

fn send<B: Body>(stream: &Stream, body: &B, until_ns: i64) -> Result<()> {
    let mut out = Vec::new();
    let left = (until_ns - seam::monotonic_ns()).max(0);
    frame::append(Header { deadline_left_ns: left as u64, ..Header::new(B::VERB, 0) }, body, &mut out)?;
    stream.send_all(&out, until_ns)
}

fn receive(stream: &Stream, frames: &mut Frames, until_ns: i64) -> Result<Frame> {
    loop {
        if let Some(frame) = frames.next(stream, false)? {
            if frame.header.verb == Verb::Fault.number() {
                return Err(frame.header.body::<Fault>(&frame.body)?.error);
            }
            return Ok(frame);
        }
        if !socket::wait_readable(stream, (until_ns - seam::monotonic_ns()).max(0)) && seam::monotonic_ns() >= until_ns
        {
            return Err(Error::timeout("the store's daemon does not answer; see its log, or end it and try again"));
        }
    }
}

/// Shakes hands over a connected socket, until a time of the monotonic clock.
pub(crate) fn shake(stream: Stream, hello: &Hello, trust: &Trust, until_ns: i64) -> Result<Shaken> {
    let local = matches!(trust, Trust::Directory);
    let shaken = exchange(&stream, hello, trust, until_ns).inspect_err(|_| {
        if !local {
            // The daemon may have let us in already: what it keeps of the session must not end with this attempt.
            tcp::abort(&stream);
        }
    });
    let (frames, welcome, page) = shaken?;
    Ok(Shaken { stream, frames, welcome, page })
}

fn exchange(
    stream: &Stream,
    hello: &Hello,
    trust: &Trust,
    until_ns: i64,
) -> Result<(Frames, Welcome, Option<OwnedFd>)> {
    stream.shake(until_ns)?;
    let exported = stream.exported()?;
    let secret = match trust {
        Trust::Secret(secret) => Some(secret.within(exported.as_ref())),
        _ => None,
    };
    send(stream, hello, until_ns)?;
    let local = matches!(trust, Trust::Directory);
    let mut frames = if local { Frames::default() } else { Frames::without_descriptors() };
    let mut frame = receive(stream, &mut frames, until_ns)?;
    let mut asked = false;
    if frame.header.verb == Verb::Challenge.number() {
        let challenge: Challenge = frame.header.body(&frame.body)?;
        let Some(secret) = &secret else {
            return Err(Error::denied(
                "the store asks for its secret: copy the file named secret from its directory, and name the copy in \
                 IOVERBS_SECRET, or as ?secret=FILE behind the URL",
            )
            .with_clause(Clause::A2));
        };
        let proof = secret.proof(Side::Client, hello, &challenge.challenge).to_vec();
        send(stream, &Proof { proof }, until_ns)?;
        frame = receive(stream, &mut frames, until_ns)?;
        asked = true;
    }
    let welcome: Welcome = frame.header.body(&frame.body)?;
    if let Some(secret) = &secret
        && !(asked && secret.fits(&welcome.proof, Side::Server, hello, &hello.challenge))
    {
        return Err(Error::denied(
            "whoever listens there does not prove that it has the store's secret: check the address; if the daemon was \
             told to do without (--no-secret), say so too, with ?secret=none",
        )
        .with_clause(Clause::A2));
    }
    let page = match local {
        true => Some(frames.take_fd()?.ok_or_else(|| socket::no_descriptor("the session's lease page"))?),
        false => None,
    };
    if local
        && welcome.rings
        && let Some(memory) = frames.take_fd()?
        && let Ok(rings) = Rings::map(memory, End::Client)
    {
        // Without them all goes over the socket: the daemon sees that nobody looks.
        stream.begin(rings);
    }
    Ok((frames, welcome, page))
}
