//! A cable between a client and a daemon: a relay of TCP connections that a test can cut, hold, listen in on, and damage.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    /// Nothing passes.
    held: AtomicBool,
    /// Nobody gets through any more.
    unplugged: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    /// How many bytes have passed.
    passed: AtomicU64,
    /// All connections are cut once so many have.
    cut_at: AtomicU64,
    /// In about every n-th piece a bit is flipped; 0 = in none.
    damage_every: AtomicU64,
    heard: Mutex<Option<Vec<u8>>>,
}

impl Shared {
    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            // So that the other side sees a break, and not an end.
            let _ = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            let _ = rustix::net::connect_unspec(&connection);
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Not even the end of a connection passes.
    fn wait_while_held(&self) {
        while self.held.load(Ordering::SeqCst) && !self.ends.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buf = vec![0; 64 << 10];
        let mut pieces = 0u64;
        from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        loop {
            let n = match from.read(&mut buf) {
                Ok(0) => {
                    self.wait_while_held();
                    break drop(to.shutdown(Shutdown::Write));
                }
                Ok(n) => n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.ends.load(Ordering::SeqCst) {
                        break;
                    }
                    continue;
                }
                Err(_) => break,
            };
            self.wait_while_held();
            if let Some(heard) = &mut *self.heard.lock().unwrap() {
                heard.extend_from_slice(&buf[..n]);
            }
            pieces += 1;
            let every = self.damage_every.load(Ordering::SeqCst);
            if every > 0 && pieces.is_multiple_of(every) {
                let at = (pieces as usize).wrapping_mul(7919) % n;
                buf[at] ^= 1 << (pieces % 8);
            }
            if to.write_all(&buf[..n]).is_err() {
                break;
            }
            if self.passed.fetch_add(n as u64, Ordering::SeqCst) + n as u64 >= self.cut_at.load(Ordering::SeqCst) {
                self.cut_at.store(u64::MAX, Ordering::SeqCst);
                self.cut();
            }
        }
    }
}

/// One cable.
pub(crate) struct Cable {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl Cable {
    /// To an address.
    pub(crate) fn to(address: &str) -> Cable {
        let to: SocketAddr = address.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared { cut_at: AtomicU64::new(u64::MAX), ..Shared::default() });
        let relay = shared.clone();
        let listener = std::thread::spawn(move || {
            while !relay.ends.load(Ordering::SeqCst) {
                let Ok((ours, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                ours.set_nonblocking(false).unwrap();
                let theirs = TcpStream::connect(to);
                let (false, Ok(theirs)) = (relay.unplugged.load(Ordering::SeqCst), theirs) else { continue };
                for stream in [&ours, &theirs] {
                    stream.set_nodelay(true).unwrap();
                    relay.connections.lock().unwrap().push(stream.try_clone().unwrap());
                }
                for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
                    let (relay, from, to) = (relay.clone(), from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || relay.pump(from, to));
                }
            }
        });
        Cable { port, shared, listener: Some(listener) }
    }

    /// Breaks every connection; new ones come about.
    pub(crate) fn cut(&self) {
        self.shared.cut();
    }

    /// The same once so many more bytes have passed.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.shared.cut_at.store(self.shared.passed.load(Ordering::SeqCst) + bytes, Ordering::SeqCst);
    }

    /// Whether it was cut since.
    pub(crate) fn was_cut(&self) -> bool {
        self.shared.cut_at.load(Ordering::SeqCst) == u64::MAX
    }

    /// Nothing passes, and nobody hears of that.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::SeqCst);
    }

    /// Breaks every connection, and lets none come about.
    pub(crate) fn unplug(&self) {
        self.shared.unplugged.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Flips a bit in about every n-th piece.
    pub(crate) fn damage_every(&self, n: u64) {
        self.shared.damage_every.store(n, Ordering::SeqCst);
    }

    /// Listens in from now on.
    pub(crate) fn listen_in(&self) {
        *self.shared.heard.lock().unwrap() = Some(Vec::new());
    }

    /// All that passed since.
    pub(crate) fn heard(&self) -> Vec<u8> {
        self.shared.heard.lock().unwrap().take().unwrap_or_default()
    }

    pub(crate) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.cut();
        self.listener.take().map(JoinHandle::join);
    }
}
