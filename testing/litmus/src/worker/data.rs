//! Bytes that tell whose they are.

/// A number, or a sum of products of numbers: `4096+2*8`.
pub fn number(text: &str) -> Option<u64> {
    text.split('+').map(|product| product.split('*').map(|n| n.parse::<u64>().ok()).product::<Option<u64>>()).sum()
}

/// The bytes that a text stands for: `7` is a byte that repeats, `w3.19` is record 19 of writer 3.
pub fn make(text: &str, len: usize) -> Option<Vec<u8>> {
    match text.strip_prefix('w') {
        None => Some(vec![text.parse().ok()?; len]),
        Some(record) => {
            let (writer, n) = record.split_once('.')?;
            Some(record_of(writer.parse().ok()?, number(n)? as u32, len))
        }
    }
}

const HEAD: usize = 12;

/// A record that names its writer, its number and its length; every byte of it is known. At least 12 bytes.
pub fn record_of(writer: u16, number: u32, len: usize) -> Vec<u8> {
    let mut out = vec![b'R', b'x'];
    out.extend(writer.to_le_bytes());
    out.extend(number.to_le_bytes());
    out.extend((len as u32).to_le_bytes());
    out.extend((HEAD..len).map(|i| body(writer, number, i)));
    out
}

fn body(writer: u16, number: u32, i: usize) -> u8 {
    (u32::from(writer) * 31 + number * 7 + i as u32) as u8
}

/// A record as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Found {
    /// Whose it is.
    pub writer: u16,
    /// Its number.
    pub number: u32,
    /// Where it begins.
    pub offset: usize,
}

/// The records of a log. The error says at which byte something else stands.
pub fn records(mut log: &[u8]) -> Result<Vec<Found>, String> {
    let all = log.len();
    let mut out = Vec::new();
    while !log.is_empty() {
        let offset = all - log.len();
        let four = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(log.get(at..at + 4)?.try_into().ok()?)) };
        let head = || Some((u16::from_le_bytes(log.get(2..4)?.try_into().ok()?), four(4)?, four(8)? as usize));
        let Some((writer, number, len)) = head().filter(|_| log.starts_with(b"Rx")) else {
            return Err(format!("no record begins at byte {offset} of {all}"));
        };
        if len > log.len() || len < HEAD || log[..len] != record_of(writer, number, len) {
            return Err(format!("record {number} of writer {writer} at byte {offset} of {all} is torn"));
        }
        out.push(Found { writer, number, offset });
        log = &log[len..];
    }
    Ok(out)
}

/// Bytes as runs: `47008:1*47000,2*8` is their number and what they are.
pub fn runs(bytes: &[u8]) -> String {
    let mut out = format!("{}:", bytes.len());
    let mut rest = bytes;
    for n in 0.. {
        let Some(first) = rest.first() else { break };
        if n == 64 {
            out.push_str(",…");
            break;
        }
        let run = run(rest, *first);
        let comma = if n == 0 { "" } else { "," };
        out.push_str(&format!("{comma}{first}*{run}"));
        rest = &rest[run..];
    }
    out
}

/// How often a byte stands at the beginning. By blocks: tests run unoptimised, and on many megabytes.
fn run(bytes: &[u8], byte: u8) -> usize {
    let block = [byte; 4096];
    let whole = bytes.chunks_exact(block.len()).take_while(|chunk| *chunk == block).count() * block.len();
    whole + bytes[whole..].iter().take_while(|b| **b == byte).count()
}

#[cfg(test)]
mod tests;
