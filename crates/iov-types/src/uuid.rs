//! UUIDs, and the text form `uuid:` + 36 characters that keeps them apart from names (rule 8 of the header).

use crate::{Error, Result};

/// A 128-bit identifier; collections, workspaces and batches have one of version 7 (RFC 9562), which sorts by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// What a UUID in text begins with.
pub(crate) const PREFIX: &str = "uuid:";

impl Uuid {
    /// The zero UUID: "none", and as a group "the root of the workspace".
    pub const NIL: Uuid = Uuid([0; 16]);

    /// Builds a version 7 UUID (RFC 9562 §5.7) from Unix milliseconds and 80 random bits, of which 74 are used.
    pub fn v7(unix_ms: u64, random: [u8; 10]) -> Uuid {
        let mut b = [0u8; 16];
        b[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        b[6..].copy_from_slice(&random);
        b[6] = 0x70 | (b[6] & 0x0f);
        b[8] = 0x80 | (b[8] & 0x3f);
        Uuid(b)
    }

    /// Whether this is the zero UUID.
    pub fn is_nil(&self) -> bool {
        *self == Uuid::NIL
    }

    /// The version nibble: 7 for what [`Uuid::v7`] makes.
    pub fn version(&self) -> u8 {
        self.0[6] >> 4
    }

    /// Milliseconds since 1970 in a version 7 UUID.
    pub fn unix_ms(&self) -> u64 {
        let mut ms = [0u8; 8];
        ms[2..].copy_from_slice(&self.0[..6]);
        u64::from_be_bytes(ms)
    }

    /// Reads `uuid:xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` in either case.
    pub fn parse(text: &str) -> Result<Uuid> {
        let bad = || Error::invalid(format!("{text:?} is not a UUID: it is \"uuid:\" and 36 characters, 8-4-4-4-12"));
        let hex = text.strip_prefix(PREFIX).ok_or_else(bad)?.as_bytes();
        if hex.len() != 36 {
            return Err(bad());
        }
        let mut out = [0u8; 16];
        let mut nibbles = 0;
        for (i, &c) in hex.iter().enumerate() {
            if matches!(i, 8 | 13 | 18 | 23) {
                if c != b'-' {
                    return Err(bad());
                }
                continue;
            }
            let digit = (c as char).to_digit(16).ok_or_else(bad)? as u8;
            out[nibbles / 2] = (out[nibbles / 2] << 4) | digit;
            nibbles += 1;
        }
        Ok(Uuid(out))
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(PREFIX)?;
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
