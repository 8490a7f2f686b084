//! Structures as the kernel lays them out: numbers of the machine's own order, one behind the other.

use crate::abi::EIO;

/// Reads one number after the other; what is not there is an error of whoever sent it.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], i32> {
        let (first, rest) = self.0.split_first_chunk().ok_or(EIO)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, i32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, i32> {
        self.take().map(u64::from_ne_bytes)
    }

    /// The bytes up to the next zero, which is left out.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], i32> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(EIO)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], i32> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(EIO)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Writes one number after the other into room that is there.
pub(crate) struct Writer<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(room: &'a mut [u8]) -> Writer<'a> {
        Writer { room, len: 0 }
    }

    /// Bytes; those for which no room is left are not written, and [`Writer::done`] says so.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if let Some(room) = self.room.get_mut(self.len..self.len.saturating_add(bytes.len())) {
            room.copy_from_slice(bytes);
        }
        self.len = self.len.saturating_add(bytes.len());
        self
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    pub(crate) fn zeros(&mut self, len: usize) -> &mut Self {
        for _ in 0..len {
            self.bytes(&[0]);
        }
        self
    }

    /// How much was written.
    pub(crate) fn done(&self) -> Result<usize, i32> {
        if self.len <= self.room.len() { Ok(self.len) } else { Err(EIO) }
    }
}
