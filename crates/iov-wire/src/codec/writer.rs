//! Appending keys, numbers and lengths.

use super::WireType;

/// Appends a number in groups of seven bits, the lowest first.
#[inline]
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    let (mut bytes, mut len) = ([0u8; 10], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

/// Appends the key of a field.
#[inline]
pub fn put_key(tag: u32, wire: WireType, out: &mut Vec<u8>) {
    put_varint(u64::from(tag) << 3 | wire as u64, out);
}

/// Begins something with a length before it. What comes between this and [`end`] is the content.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len() - 1
}

/// Ends what [`begin`] began. One byte was kept for the length, which nearly always suffices; a longer content moves up,
/// which costs less than computing every length in a pass of its own.
#[inline]
pub fn end(begun: usize, out: &mut Vec<u8>) {
    let len = out.len() - begun - 1;
    if len < 0x80 {
        out[begun] = len as u8;
    } else {
        end_long(begun, len, out);
    }
}

fn end_long(begun: usize, len: usize, out: &mut Vec<u8>) {
    let content_end = out.len();
    put_varint(len as u64, out);
    let width = out.len() - content_end;
    let mut prefix = [0u8; 10];
    prefix[..width].copy_from_slice(&out[content_end..]);
    out.copy_within(begun + 1..content_end, begun + width);
    out[begun..begun + width].copy_from_slice(&prefix[..width]);
    out.truncate(begun + width + len);
}
