//! Sizes and times as people write them: `47008`, `4KiB`, `1MB`; `5s`, `250ms`.

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Units in which sizes are written, the largest first: only those that read well.
const WRITTEN_SIZES: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads a size in bytes; without a unit it counts bytes. The error says what is wrong, as the end of a sentence.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, "a size is a whole number with an optional unit, as in 47008, 4KiB or 1MB")?;
    let factor = if unit.is_empty() { 1 } else { factor(unit, SIZES)? };
    number.checked_mul(factor).ok_or_else(|| "has more bytes than 64 bits can count".into())
}

/// Reads a time in nanoseconds; the unit is needed. The error says what is wrong, as the end of a sentence.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, "a time is a whole number with a unit, as in 5s or 250ms")?;
    if unit.is_empty() {
        return Err(format!("has no unit; allowed: {}", names(TIMES)));
    }
    number.checked_mul(factor(unit, TIMES)?).ok_or_else(|| "has more nanoseconds than 64 bits can count".into())
}

/// Writes a size with the largest binary unit that leaves a whole number.
pub fn format_size(bytes: u64) -> String {
    write(bytes, WRITTEN_SIZES.iter().copied()).unwrap_or_else(|| bytes.to_string())
}

/// Writes a time with the largest unit that leaves a whole number.
pub fn format_time(ns: u64) -> String {
    write(ns, TIMES.iter().rev().copied()).unwrap_or_else(|| format!("{ns}ns"))
}

fn write(n: u64, mut units: impl Iterator<Item = (&'static str, u64)>) -> Option<String> {
    units
        .find(|(_, factor)| n >= *factor && n.is_multiple_of(*factor))
        .map(|(unit, factor)| format!("{}{unit}", n / factor))
}

fn split<'a>(text: &'a str, shape: &str) -> Result<(u64, &'a str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("is not a number: {shape}"));
    }
    let number = number.parse().map_err(|_| String::from("is larger than 64 bits can hold"))?;
    match unit.chars().next() {
        Some('.') if !unit.starts_with("..") => Err(format!("is not whole: {shape}")),
        _ => Ok((number, unit.trim())),
    }
}

fn factor(unit: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    if let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) {
        return Ok(*factor);
    }
    let close = units.iter().map(|(name, _)| *name).find(|name| name.eq_ignore_ascii_case(unit));
    let hint = close.map_or_else(String::new, |name| format!(", did you mean {name}?"));
    Err(format!("has an unknown unit {unit:?}{hint}; allowed: {}", names(units)))
}

fn names(units: &[(&str, u64)]) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
