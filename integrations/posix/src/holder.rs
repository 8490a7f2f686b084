//! Locks of open files that more than one process has.
//!
//! A lock by `flock` belongs to the open file, whose descriptors `fork` and `exec` pass on, and ends with the last of them: the lock of
//! `( flock 9; … ) 9> lock` was taken by a program that has ended long before. A session's locks end with its process, and so does what
//! it has open and somebody has deleted. So where
//! several processes have an open file, another process holds its locks, and has it open if it has no name, for as long as any of them has it (ADR 31, 32). This is what
//! they say to each other: who wants something connects to a socket, says [`Asked`], and hears an [`Answer`].

use std::{
    io::Read,
    sync::{Arc, Mutex, PoisonError},
};

use ioverbs::{Range, seam};

use crate::{
    Errno, File, InTheWay, LockKind, LockRange, Outcome,
    locks::{LAST, range_of},
};

/// The command of `iov` that holds locks: behind it come the name of the workspace and the identity of the file. Its standard input is the socket where it is asked,
/// its standard output a file that others have locked by `flock` for as long as there is anything to hold.
pub const COMMAND: &str = "hold-lock";

/// Whose the locks are, within the session of who holds them.
const OWNER: u64 = 1;
/// Who looks whether anybody stands in line.
const PROBE: u64 = 2;
/// All that an open file can lock, and one byte more, of which only that one knows.
const WHOLE: Range = Range { offset: 0, len: LAST + 2 };
const BEHIND: Range = Range { offset: LAST + 1, len: 1 };
/// How long between two looks, in nanoseconds.
const PAUSE_NS: u64 = 100_000;

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// The lock, if it can be had at once, or that it is given back.
    Lock,
    /// A place in line for it, right behind the process that asks and has it alone; or the lock itself, next to a process that shares it. The answer says that it is had.
    Place,
    /// Whose lock is in its way.
    InTheWay,
    /// That it has the file open, also if that has no name any more, for as long as anybody has the open file.
    Keep,
    /// That it ends, if nobody has the open file any more; answered once nothing is locked then.
    End,
}

/// All kinds, as they are numbered.
const WANTS: [Wants; 5] = [Wants::Lock, Wants::Place, Wants::InTheWay, Wants::Keep, Wants::End];

/// What the holder of locks is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is wanted.
    pub wants: Wants,
    /// How it is locked.
    pub kind: LockKind,
    /// What is.
    pub range: LockRange,
}

/// What it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer(pub Outcome<Option<InTheWay>>);

fn kind_number(kind: LockKind) -> u8 {
    match kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::None => 2,
    }
}

fn kind_of(number: u8) -> Option<LockKind> {
    [LockKind::Read, LockKind::Write, LockKind::None].into_iter().find(|kind| kind_number(*kind) == number)
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

impl Request {
    /// Bytes of one.
    pub const LEN: usize = 19;

    /// As it is said.
    pub fn to_bytes(&self) -> [u8; Request::LEN] {
        let mut bytes = [0; Request::LEN];
        bytes[0] = WANTS.iter().position(|wants| *wants == self.wants).unwrap_or_default() as u8;
        bytes[1] = kind_number(self.kind);
        if let LockRange::Bytes(first, last) = self.range {
            bytes[2] = 1;
            bytes[3..11].copy_from_slice(&first.to_le_bytes());
            bytes[11..].copy_from_slice(&last.to_le_bytes());
        }
        bytes
    }

    /// What was said; none: nothing that makes sense.
    pub fn read(bytes: &[u8; Request::LEN]) -> Option<Request> {
        let wants = *WANTS.get(usize::from(bytes[0]))?;
        let range = match bytes[2] {
            0 => LockRange::Whole,
            1 => LockRange::Bytes(number(&bytes[3..])?, number(&bytes[11..])?),
            _ => return None,
        };
        Some(Request { wants, kind: kind_of(bytes[1])?, range })
    }
}

/// A request, and who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What is wanted.
    pub request: Request,
    /// What the file says that stands for the open file, which those can read who have it.
    pub proof: Vec<u8>,
    /// By this the file may be opened, whatever has become of its names (X1); empty: it has some.
    pub token: Vec<u8>,
}

impl Asked {
    /// As it is said; none: it is longer than anybody's.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = self.request.to_bytes().to_vec();
        for part in [&self.proof, &self.token] {
            bytes.extend_from_slice(&u16::try_from(part.len()).ok()?.to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Some(bytes)
    }

    /// Reads what is said; none: nothing that makes sense.
    pub fn read(from: &mut impl Read) -> std::io::Result<Option<Asked>> {
        let mut request = [0; Request::LEN];
        from.read_exact(&mut request)?;
        let mut part = || {
            let mut len = [0; 2];
            from.read_exact(&mut len)?;
            let mut part = vec![0; usize::from(u16::from_le_bytes(len))];
            from.read_exact(&mut part).map(|()| part)
        };
        let (proof, token) = (part()?, part()?);
        Ok(Request::read(&request).map(|request| Asked { request, proof, token }))
    }
}

impl Answer {
    /// Bytes of one.
    pub const LEN: usize = 29;

    /// As it is said.
    pub fn to_bytes(&self) -> [u8; Answer::LEN] {
        let mut bytes = [0; Answer::LEN];
        match self.0 {
            Err(e) => bytes[..4].copy_from_slice(&e.0.to_le_bytes()),
            Ok(None) => bytes[4] = kind_number(LockKind::None),
            Ok(Some(found)) => {
                bytes[4] = kind_number(found.kind);
                bytes[5..13].copy_from_slice(&found.first.to_le_bytes());
                bytes[13..21].copy_from_slice(&found.last.to_le_bytes());
                bytes[21..].copy_from_slice(&found.owner.to_le_bytes());
            }
        }
        bytes
    }

    /// What was said; none: nothing that makes sense.
    pub fn read(bytes: &[u8; Answer::LEN]) -> Option<Answer> {
        let errno = i32::from_le_bytes(bytes[..4].try_into().ok()?);
        if errno != 0 {
            return (errno > 0).then_some(Answer(Err(Errno(errno))));
        }
        let kind = kind_of(bytes[4])?;
        let (first, last, owner) = (number(&bytes[5..])?, number(&bytes[13..])?, number(&bytes[21..])?);
        Some(Answer(Ok((kind != LockKind::None).then_some(InTheWay { kind, first, last, owner }))))
    }
}

/// Who holds the locks of an open file.
pub struct Holder {
    file: Arc<File>,
    /// There may be something that it has locked.
    holds: bool,
    /// It is to stay.
    keeps: bool,
}

impl Holder {
    /// Of this file, which it has open from now on. It holds nothing yet.
    pub fn new(file: File) -> Holder {
        Holder { file: Arc::new(file), holds: false, keeps: false }
    }

    /// Whether there may be anything that it holds.
    pub fn holds(&self) -> bool {
        self.holds || self.keeps
    }

    /// Does what is asked. It does not wait for others' locks.
    pub fn answer(&mut self, asked: &Request) -> Answer {
        let range = match asked.range {
            LockRange::Whole => Ok(WHOLE),
            range => range_of(range),
        };
        Answer(range.and_then(|range| match asked.wants {
            Wants::InTheWay => self.file.in_the_way(OWNER, range, asked.kind),
            Wants::Keep => {
                self.keeps = true;
                Ok(None)
            }
            Wants::End => self.file.lock_of(OWNER, WHOLE, LockKind::None).map(|()| None),
            // Who has it alone is the only one to stand in line like this.
            Wants::Place if asked.kind == LockKind::Write => {
                self.holds = true;
                self.place(range, asked.kind).map(|()| None)
            }
            Wants::Place | Wants::Lock => {
                self.file.lock_of(OWNER, range, asked.kind)?;
                self.holds = asked.kind != LockKind::None || (self.holds && asked.range != LockRange::Whole);
                Ok(None)
            }
        }))
    }

    /// Returns when the lock is there, or is next to be given.
    fn place(&self, range: Range, kind: LockKind) -> Outcome<()> {
        let came: Arc<Mutex<Option<Outcome<()>>>> = Arc::default();
        let (file, says) = (self.file.clone(), came.clone());
        let waits = move || {
            let outcome = file.lock_in_turn(OWNER, range, kind);
            *says.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        };
        seam::spawn("iov-waits", waits).map_err(|_| Errno::ENOLCK)?;
        loop {
            if let Some(outcome) = *came.lock().unwrap_or_else(PoisonError::into_inner) {
                return outcome;
            }
            // Nobody else asks for this byte, and nobody passes by who waits.
            match self.file.lock_of(PROBE, BEHIND, LockKind::Write) {
                Err(Errno::EAGAIN) => return Ok(()),
                probed => probed?,
            }
            self.file.lock_of(PROBE, BEHIND, LockKind::None)?;
            seam::sleep(PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests;
