//! The frame: a header of 64 bytes, a body (a message), a payload (bytes as they are).

use iov_types::{Error, Result};

use crate::verbs::{Body, Verb};
use crate::version::{HANDSHAKE_VERSION, MAX_VERSION, MIN_VERSION};

/// What a frame begins with.
pub const MAGIC: [u8; 8] = *b"IOVERBS1";
/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Largest body: a batch of a million small operations, and no more memory than a server can spare for one request.
pub const BODY_BYTES: usize = 64 << 20;
/// Largest payload: bounds how long one frame keeps the others waiting; larger transfers are cut.
pub const PAYLOAD_BYTES: usize = 64 << 20;
/// Time left of a request without a deadline.
pub const NO_DEADLINE: u64 = u64::MAX;

/// The flag of a request that gives way to others ([`iov_types::Priority::Background`]). Only for servers that say they know it.
pub const BACKGROUND: u32 = 1;

const CRC_AT: usize = 48;
const RESERVED_AT: usize = 52;

/// A header. All numbers are little-endian; `docs/wire.md` draws it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Version of the protocol.
    pub version: u16,
    /// Number of the verb; [`Header::verb`] tells which one it is.
    pub verb: u16,
    /// [`BACKGROUND`] or none; one that is not known is an error, since whoever sets it wants something.
    pub flags: u32,
    /// Ties an answer to its request; 0 = none.
    pub request: u64,
    /// Bytes of the body.
    pub body_len: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
    /// Bytes of the payload.
    pub payload_len: u64,
    /// Time left for the request in nanoseconds; [`NO_DEADLINE`] = none. A duration, since two hosts' clocks differ.
    pub deadline_left_ns: u64,
}

impl Header {
    /// The header of a frame of the newest version (of the handshake, of the one it has) without payload and deadline;
    /// [`append`] sets what concerns the body.
    pub fn new(verb: Verb, request: u64) -> Header {
        let version = if matches!(verb, Verb::Hello | Verb::Welcome) { HANDSHAKE_VERSION } else { MAX_VERSION };
        Header {
            version,
            verb: verb.number(),
            flags: 0,
            request,
            body_len: 0,
            body_crc: 0,
            payload_len: 0,
            deadline_left_ns: NO_DEADLINE,
        }
    }

    /// The verb; one of a newer release is an error of kind `Version`, to be answered with `Fault` under the same id.
    pub fn verb(&self) -> Result<Verb> {
        Verb::from_number(self.verb).ok_or_else(|| {
            Error::version(format!("the peer sent verb {}, which this release does not know: update it", self.verb))
        })
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0u8; HEADER_BYTES];
        b[0..8].copy_from_slice(&MAGIC);
        b[8..10].copy_from_slice(&self.version.to_le_bytes());
        b[10..12].copy_from_slice(&self.verb.to_le_bytes());
        b[12..16].copy_from_slice(&self.flags.to_le_bytes());
        b[16..24].copy_from_slice(&self.request.to_le_bytes());
        b[24..28].copy_from_slice(&self.body_len.to_le_bytes());
        b[28..32].copy_from_slice(&self.body_crc.to_le_bytes());
        b[32..40].copy_from_slice(&self.payload_len.to_le_bytes());
        b[40..48].copy_from_slice(&self.deadline_left_ns.to_le_bytes());
        let crc = checksum(&b);
        b[CRC_AT..RESERVED_AT].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Checks everything that the header alone can tell: magic, checksum, version, flags, lengths.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        if bytes[..8] != MAGIC {
            return Err(Error::corrupt("the peer does not speak this protocol: a frame does not begin with IOVERBS1"));
        }
        let mut blank = *bytes;
        blank[CRC_AT..RESERVED_AT].fill(0);
        let crc = u32::from_le_bytes(part(bytes, CRC_AT));
        if crc != checksum(&blank) {
            return Err(Error::corrupt("a frame's header was damaged on its way: its checksum does not match"));
        }
        let header = Header {
            version: u16::from_le_bytes(part(bytes, 8)),
            verb: u16::from_le_bytes(part(bytes, 10)),
            flags: u32::from_le_bytes(part(bytes, 12)),
            request: u64::from_le_bytes(part(bytes, 16)),
            body_len: u32::from_le_bytes(part(bytes, 24)),
            body_crc: u32::from_le_bytes(part(bytes, 28)),
            payload_len: u64::from_le_bytes(part(bytes, 32)),
            deadline_left_ns: u64::from_le_bytes(part(bytes, 40)),
        };
        header.check(&bytes[RESERVED_AT..])?;
        Ok(header)
    }

    fn check(&self, reserved: &[u8]) -> Result<()> {
        if !(MIN_VERSION..=MAX_VERSION).contains(&self.version) && self.version != HANDSHAKE_VERSION {
            return Err(Error::version(format!(
                "the peer sent a frame of protocol version {}, this release speaks {MIN_VERSION} to {MAX_VERSION}",
                self.version
            )));
        }
        if self.flags & !BACKGROUND != 0 || reserved.iter().any(|b| *b != 0) {
            return Err(Error::version("the peer set a flag of a frame that this release does not know: update it"));
        }
        if self.body_len as usize > BODY_BYTES || self.payload_len > PAYLOAD_BYTES as u64 {
            return Err(Error::corrupt(format!(
                "a frame announces {} bytes of body and {} of payload, the limits are {BODY_BYTES} and {PAYLOAD_BYTES}",
                self.body_len, self.payload_len
            )));
        }
        Ok(())
    }

    /// Reads the body of a frame with this header.
    pub fn body<B: Body>(&self, body: &[u8]) -> Result<B> {
        self.check_body(body)?;
        if self.verb != B::VERB.number() {
            let sent = Verb::from_number(self.verb).map_or("an unknown verb", Verb::name);
            return Err(Error::corrupt(format!("the peer sent {sent} where {} belongs", B::VERB.name())));
        }
        B::decode(body)
    }

    /// Checks that a body is the one this header was made for.
    pub fn check_body(&self, body: &[u8]) -> Result<()> {
        if body.len() != self.body_len as usize || checksum(body) != self.body_crc {
            return Err(Error::corrupt("a frame's body was damaged on its way: its checksum does not match"));
        }
        Ok(())
    }
}

/// Appends a frame without its payload, of which the header tells only the length. The verb is
/// that of the body. Nothing is appended where the frame would be larger than the limits.
pub fn append<B: Body>(header: Header, body: &B, out: &mut Vec<u8>) -> Result<()> {
    let begun = out.len();
    out.resize(begun + HEADER_BYTES, 0);
    body.encode(out);
    let encoded = &out[begun + HEADER_BYTES..];
    let (len, payload_len) = (encoded.len(), header.payload_len);
    if len > BODY_BYTES || payload_len > PAYLOAD_BYTES as u64 {
        out.truncate(begun);
        return Err(Error::too_big(format!(
            "{} takes {len} bytes and {payload_len} of payload, the limits are {BODY_BYTES} and {PAYLOAD_BYTES}: split it",
            B::VERB.name()
        )));
    }
    let header =
        Header { verb: B::VERB.number(), body_len: len as u32, body_crc: checksum(encoded), ..header }.encode();
    out[begun..begun + HEADER_BYTES].copy_from_slice(&header);
    Ok(())
}

/// CRC-32C, as headers, bodies and the checksums of payloads use it.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut part = [0u8; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests;
