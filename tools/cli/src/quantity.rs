//! Sizes, times and ranges as people read and write them.

use iov_semantics::quantity::{parse_size, parse_time};
use ioverbs::{Clause, Error, Result, seam};
use jiff::{Timestamp, tz::TimeZone};

/// A size with three digits and a binary unit: `1.00 MiB`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A size, exact or for people.
pub(crate) fn size(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { human(bytes) }
}

/// Reads a size.
pub(crate) fn read_size(text: &str) -> Result<u64> {
    parse_size(text).map_err(|why| Error::invalid(format!("the size {text:?} {why}")))
}

/// Reads a number of bytes or things, or `none` for no limit.
pub(crate) fn read_limit(text: &str) -> Result<u64> {
    if text == "none" { Ok(u64::MAX) } else { read_size(text) }
}

/// Reads a time span in nanoseconds.
pub(crate) fn read_span(text: &str) -> Result<i64> {
    let ns = parse_time(text).map_err(|why| Error::invalid(format!("the time {text:?} {why}")))?;
    i64::try_from(ns).map_err(|_| Error::invalid(format!("the time {text:?} is longer than 292 years")))
}

/// Reads when something ends: a time span from now, a date, or `never`.
pub(crate) fn read_expiry(text: &str) -> Result<i64> {
    if text == "never" {
        return Ok(i64::MAX);
    }
    if let Some(ns) = read_timestamp(text) {
        return Ok(ns);
    }
    let span = read_span(text).map_err(|_| {
        Error::invalid(format!(
            "{text:?} is no expiry: it is a time from now as in 2d, a date as in 2027-01-31, or never"
        ))
    })?;
    Ok(seam::now_ns().saturating_add(span))
}

/// Fails where an expiry is over already: nothing could be made there.
pub(crate) fn ahead(expires_ns: i64, text: &str) -> Result<()> {
    if expires_ns > seam::now_ns() {
        return Ok(());
    }
    Err(Error::invalid(format!("{text} is over already: name a time to come, as 2d for two days from now")))
}

/// Reads an RFC 3339 time, or a date, which is its midnight in UTC: nanoseconds since 1970.
pub(crate) fn read_timestamp(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let dated = bytes.len() >= 10
        && bytes[..10]
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    if !dated {
        return None;
    }
    let time: Timestamp = match bytes.len() {
        10 => format!("{text}T00:00:00Z").parse().ok()?,
        // RFC 3339 has no zone names in brackets, which the parser would take.
        _ if matches!(bytes[10], b'T' | b't') && !bytes.contains(&b'[') => text.parse().ok()?,
        _ => return None,
    };
    i64::try_from(time.as_nanosecond()).ok()
}

/// A time as RFC 3339 in UTC, exact.
pub(crate) fn rfc3339(ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(ns)).map_or_else(|_| format!("{ns}ns"), |t| t.to_string())
}

/// A time in the time zone of this machine, to the minute.
pub(crate) fn local_minute(ns: i64) -> String {
    local(ns, "%Y-%m-%d %H:%M")
}

/// A time in the time zone of this machine, to the microsecond.
pub(crate) fn local_exact(ns: i64) -> String {
    local(ns, "%Y-%m-%d %H:%M:%S.%6f %z")
}

fn local(ns: i64, format: &str) -> String {
    match Timestamp::from_nanosecond(i128::from(ns)) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("{ns}ns"),
    }
}

/// A time span for people, to about three digits.
pub(crate) fn span(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 129_600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// A part of a collection: first byte, and one past the last; `None` = the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
}

impl Span {
    /// Reads `FROM..TO`, `FROM..`, `..TO` or `FROM+LENGTH`.
    pub(crate) fn parse(text: &str) -> Result<Span> {
        let wrong = || Error::invalid(format!("{text:?} is no range: it is FROM..TO, FROM.., ..TO or FROM+LENGTH"));
        let span = if let Some((from, to)) = text.split_once("..") {
            let from = if from.is_empty() { 0 } else { read_size(from)? };
            let to = if to.is_empty() { None } else { Some(read_size(to)?) };
            Span { from, to }
        } else {
            let (from, len) = text.split_once('+').ok_or_else(wrong)?;
            let from = read_size(from)?;
            Span { from, to: Some(from.checked_add(read_size(len)?).ok_or_else(wrong)?) }
        };
        match span.to {
            Some(to) if to < span.from => Err(Error::invalid(format!("the range {text:?} ends before it begins"))),
            _ => Ok(span),
        }
    }

    /// The same for a part that is wanted; fails if all of it is behind the end.
    pub(crate) fn within(self, size: u64) -> Result<(u64, u64)> {
        if self.from >= size && self.from > 0 {
            return Err(Error::invalid(format!(
                "the range begins at byte {}, and there are {size} bytes, 0..{size}",
                self.from
            ))
            .with_clause(Clause::O6));
        }
        Ok(self.of(size))
    }

    /// What it covers of `size` bytes: first byte, and one past the last.
    pub(crate) fn of(self, size: u64) -> (u64, u64) {
        let to = self.to.map_or(size, |to| to.min(size));
        (self.from.min(to), to)
    }
}
