//! Taking an encoding apart, with every length checked against what is there.

use iov_types::{Error, Kind, Result};

use super::{EXPANSION, FREE_EXPANSION, MAX_DEPTH, Wire};

/// How the value of a field is laid out; the low three bits of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WireType {
    /// A number in groups of seven bits.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length and so many bytes.
    Len = 2,
    /// Four bytes; ours never write it, but an unknown field may be one.
    Fixed32 = 5,
}

/// A place in an encoding, inside the message entered last.
pub struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    end: usize,
    message: &'static str,
    depth: u32,
    /// Bytes that list elements may still take in memory.
    budget: usize,
}

/// The message outside of the one just entered.
#[must_use]
pub struct Outer {
    end: usize,
    message: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `input` as the message of that name.
    pub fn new(input: &'a [u8], message: &'static str) -> Reader<'a> {
        let budget = FREE_EXPANSION + input.len().saturating_mul(EXPANSION);
        Reader { input, at: 0, end: input.len(), message, depth: 0, budget }
    }

    /// The key of the next field; `None` at the end of the message.
    #[inline]
    pub fn key(&mut self) -> Result<Option<(u32, WireType)>> {
        if self.at == self.end {
            return Ok(None);
        }
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Len,
            5 => WireType::Fixed32,
            other => return Err(self.corrupt(format_args!("wire type {other} is not in use"))),
        };
        match u32::try_from(key >> 3) {
            Ok(tag) if tag != 0 && tag < 1 << 29 => Ok(Some((tag, wire))),
            _ => Err(self.corrupt(format_args!("field number {} is out of range", key >> 3))),
        }
    }

    /// A number in groups of seven bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.input.get(self.at) {
            Some(&byte) if byte < 0x80 && self.at < self.end => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.input[self.at..self.end].iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(self.corrupt("a number does not end"))
    }

    /// Eight bytes.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("take returned eight bytes")))
    }

    /// A length and so many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let left = self.end - self.at;
        if len > left {
            return Err(self.corrupt(format_args!("{len} bytes are announced, {left} are left")));
        }
        let bytes = &self.input[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// Steps over the value of a field that nobody here knows.
    pub fn skip(&mut self, wire: WireType) -> Result<()> {
        match wire {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.take(8).map(drop),
            WireType::Len => self.bytes().map(drop),
            WireType::Fixed32 => self.take(4).map(drop),
        }
    }

    /// Enters an embedded message; the reader ends where it ends, until [`Reader::leave`].
    #[inline]
    pub fn enter(&mut self, message: &'static str) -> Result<Outer> {
        if self.depth == MAX_DEPTH {
            return Err(self.corrupt(format_args!("messages are nested deeper than {MAX_DEPTH}")));
        }
        let len = self.bytes()?.len();
        let outer = Outer { end: self.end, message: self.message };
        (self.end, self.at, self.message) = (self.at, self.at - len, message);
        self.depth += 1;
        Ok(outer)
    }

    /// Goes on behind the message entered last, which must have been read to its end.
    #[inline]
    pub fn leave(&mut self, outer: Outer) -> Result<()> {
        if self.at != self.end {
            return Err(self.corrupt(format_args!("{} bytes are left over", self.end - self.at)));
        }
        (self.end, self.message) = (outer.end, outer.message);
        self.depth -= 1;
        Ok(())
    }

    /// Reads an embedded message. If only a newer release can read it, its error is returned as its value, and what
    /// follows it stays readable.
    pub fn tolerant<T: Wire>(&mut self) -> Result<Result<T>> {
        let outer = self.enter(T::NAME)?;
        let (end, depth) = (self.end, self.depth);
        match T::read(self) {
            Err(newer) if newer.kind() == Kind::Version => {
                (self.at, self.end, self.depth) = (end, end, depth); // also out of what is nested in it
                self.leave(outer)?;
                Ok(Err(newer))
            }
            other => {
                let value = other?;
                self.leave(outer)?;
                Ok(Ok(value))
            }
        }
    }

    /// Checks how a field is laid out.
    #[inline]
    pub fn expect(&self, found: WireType, wanted: WireType) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(self.corrupt(format_args!("a field is laid out as {found:?} where {wanted:?} belongs")))
    }

    /// Accounts for a list element of `size` bytes in memory, before it is kept.
    #[inline]
    pub fn charge(&mut self, size: usize) -> Result<()> {
        match self.budget.checked_sub(size) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.corrupt("there are more list elements than its length allows for")),
        }
    }

    /// The error for bytes that cannot be what was written.
    #[cold]
    pub fn corrupt(&self, why: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("the encoding of {} is wrong at byte {}: {why}", self.message, self.at))
    }

    /// The error for what only a newer release can have written.
    #[cold]
    pub fn newer(&self, what: impl std::fmt::Display) -> Error {
        Error::version(format!(
            "{} has {what} at byte {}, which this release does not know: update the older side",
            self.message, self.at
        ))
    }
}
