//! The ceilings: a server of bare sockets over memory of its own, and its client.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};
use ioverbs::seam;
use serde_json::json;

use crate::{buffer::Buffer, cores, data::SCHEDULE, worker as workers};

/// Most that one call sends or receives.
const CALL: usize = 1 << 20;

/// What a client asks for. A request of any kind has 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Bytes follow, to be kept at an offset; they are acknowledged with one byte.
    Write { at: u64, len: u64 },
    /// Bytes from an offset on are the answer.
    Read { at: u64, len: u64 },
    /// This connection is to be served on the core of this number; acknowledged with one byte.
    Core(u64),
}

pub(super) const ASK_BYTES: usize = 24;

impl Ask {
    pub(super) fn encode(self) -> [u8; ASK_BYTES] {
        let words = match self {
            Ask::Write { at, len } => [1, at, len],
            Ask::Read { at, len } => [2, at, len],
            Ask::Core(number) => [3, number, 0],
        };
        let mut out = [0; ASK_BYTES];
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: [u8; ASK_BYTES]) -> Result<Ask> {
        let mut words = [0; ASK_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(match words {
            [1, at, len] => Ask::Write { at, len },
            [2, at, len] => Ask::Read { at, len },
            [3, number, 0] => Ask::Core(number),
            other => bail!("no request {other:?}"),
        })
    }

    /// Where in the memory its bytes lie.
    fn range(at: u64, len: u64, size: usize) -> Result<std::ops::Range<usize>> {
        let end = at.checked_add(len).filter(|end| *end <= size as u64).context("a request beyond the memory")?;
        Ok(at as usize..end as usize)
    }
}

/// Serves one connection until its client hangs up.
fn serve(mut socket: File, memory: &Mutex<Buffer>) -> Result<()> {
    let mut ask = [0; ASK_BYTES];
    loop {
        match socket.read_exact(&mut ask) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            done => done?,
        }
        // One client at a time asks; a lock that nobody else wants is nothing beside a system call.
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.bytes();
        match Ask::decode(ask)? {
            Ask::Write { at, len } => {
                let range = Ask::range(at, len, memory.len())?;
                let mut rest = &mut memory[range];
                while !rest.is_empty() {
                    let most = rest.len().min(CALL);
                    let n = socket.read(&mut rest[..most])?;
                    ensure!(n > 0, "a client hung up within its bytes");
                    rest = &mut rest[n..];
                }
                socket.write_all(&[1])?;
            }
            Ask::Read { at, len } => {
                let range = Ask::range(at, len, memory.len())?;
                memory[range].chunks(CALL).try_for_each(|part| socket.write_all(part))?;
            }
            Ask::Core(number) => {
                cores::stay_on(0, &[number as usize])?;
                socket.write_all(&[1])?;
            }
        }
    }
}

/// Serves what connects, each in a thread, until the process ends.
fn accept(mut next: impl FnMut() -> io::Result<OwnedFd> + Send + 'static, memory: Arc<Mutex<Buffer>>) -> Result<()> {
    seam::spawn("bare-accept", move || {
        while let Ok(socket) = next() {
            let memory = memory.clone();
            let _ = seam::spawn("bare-serve", move || {
                if let Err(e) = serve(socket.into(), &memory) {
                    eprintln!("iov: the bare server: {e:#}");
                }
            });
        }
    })?;
    Ok(())
}

/// Listens on a TCP port of this machine, which it returns, and on a UNIX socket.
pub(super) fn listen(path: &Path, memory: Buffer) -> Result<SocketAddr> {
    let memory = Arc::new(Mutex::new(memory));
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = tcp.local_addr()?;
    let unix = UnixListener::bind(path).with_context(|| format!("no socket {}", path.display()))?;
    let next = move || {
        let (socket, _) = tcp.accept()?;
        socket.set_nodelay(true)?;
        Ok(socket.into())
    };
    accept(next, memory.clone())?;
    accept(move || Ok(unix.accept()?.0.into()), memory)?;
    Ok(address)
}

/// The client's end of one connection. Sockets of both kinds are read and written as files are.
pub(super) struct Bare(File);

impl Bare {
    /// To `HOST:PORT` by TCP, to the path of a UNIX socket else.
    pub(super) fn connect(address: &str) -> Result<Bare> {
        let socket: OwnedFd = match address.parse::<SocketAddr>() {
            Ok(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket.into()
            }
            Err(_) => UnixStream::connect(address)?.into(),
        };
        Ok(Bare(socket.into()))
    }

    /// The same connection, for another thread in turns with this one.
    pub(super) fn again(&self) -> Result<Bare> {
        Ok(Bare(self.0.try_clone()?))
    }

    /// Waits until one write is there.
    pub(super) fn acknowledged(&mut self) -> Result<()> {
        Ok(self.0.read_exact(&mut [0])?)
    }

    /// Sends the same bytes `times` in a row, to be written from `at` on.
    pub(super) fn send(&mut self, at: u64, bytes: &[u8], times: u64) -> Result<()> {
        self.0.write_all(&Ask::Write { at, len: times * bytes.len() as u64 }.encode())?;
        for _ in 0..times {
            self.0.write_all(bytes)?;
        }
        Ok(())
    }

    /// As [`Bare::send`], and waits until they are there.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8], times: u64) -> Result<()> {
        self.send(at, bytes, times)?;
        self.acknowledged()
    }

    /// Asks for the bytes from `at` on, for [`Bare::receive`].
    pub(super) fn ask(&mut self, at: u64, len: u64) -> Result<()> {
        Ok(self.0.write_all(&Ask::Read { at, len }.encode())?)
    }

    /// The next bytes of what was asked for.
    pub(super) fn receive(&mut self, out: &mut [u8]) -> Result<()> {
        Ok(self.0.read_exact(out)?)
    }

    /// Has this connection served on one core.
    pub(super) fn serve_on(&mut self, core: usize) -> Result<()> {
        self.0.write_all(&Ask::Core(core as u64).encode())?;
        self.acknowledged()
    }
}

/// Argument: the path of a UNIX socket to listen on. Step: `address`, of the TCP port.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [path] = args else { bail!("a bare server takes the path of a socket") };
    let address = listen(Path::new(path), Buffer::filled(SCHEDULE.footprint as usize, 0))?;
    workers::serve(|step| match step {
        "address" => Ok(json!({"address": address.to_string()})),
        other => bail!("no step {other}"),
    })
}
