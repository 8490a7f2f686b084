//! Integers and floats as text.

use iov_types::Value;

const SUFFIXES: [(&str, u64); 12] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
];

/// Reads a number at the beginning of `text`, which begins with a digit or a sign, and the bytes it took. The message says
/// what is wrong.
pub(crate) fn parse(text: &str) -> Result<(Value, usize), String> {
    let sign = usize::from(text.starts_with(['+', '-']));
    let body = &text[sign..];
    for inf in ["inf", "INF"] {
        if body.starts_with(inf) {
            let f = if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
            return Ok((Value::F64(f), sign + inf.len()));
        }
    }
    for (prefix, radix, name) in [("0x", 16, "hexadecimal"), ("0X", 16, "hexadecimal"), ("0o", 8, "octal")] {
        if let Some(rest) = body.strip_prefix(prefix) {
            let digits = digits(rest, radix);
            if digits == 0 {
                return Err(format!("expected {name} digits after '{prefix}'"));
            }
            let len = sign + prefix.len() + digits;
            return integer(text, &rest[..digits], radix, len);
        }
    }
    let whole = digits(body, 10);
    if whole == 0 {
        return Err(format!("expected a number after '{}'", &text[..sign]));
    }
    let mut len = sign + whole;
    let mut float = false;
    if text[len..].starts_with('.') {
        let fraction = digits(&text[len + 1..], 10);
        if fraction == 0 {
            return Err("expected a digit after the decimal point, as in 1.0".to_owned());
        }
        len += 1 + fraction;
        float = true;
    }
    if text[len..].starts_with(['e', 'E']) {
        let signed = 1 + usize::from(text[len + 1..].starts_with(['+', '-']));
        let exponent = digits(&text[len + signed..], 10);
        if exponent > 0 {
            len += signed + exponent;
            float = true;
        }
    }
    if !float {
        return integer(text, &body[..whole], 10, len);
    }
    if suffix(&text[len..]).is_some() {
        return Err("a size is a whole number: write 1536MiB for 1.5GiB".to_owned());
    }
    match text[..len].parse::<f64>() {
        Ok(f) if f.is_finite() => Ok((Value::F64(f), len)),
        _ => Err(format!("{} is beyond what a float can hold: infinity is 'inf'", &text[..len])),
    }
}

/// An integer with an optional size suffix, which a space may precede.
fn integer(text: &str, digits: &str, radix: u32, mut len: usize) -> Result<(Value, usize), String> {
    let mut factor = 1;
    if let Some((bytes, suffix_len)) = suffix(&text[len..]) {
        factor = bytes;
        len += suffix_len;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok().map(|n| i128::from(n) * i128::from(factor));
    let signed = magnitude.map(|m| if text.starts_with('-') { -m } else { m });
    match signed.and_then(|n| i64::try_from(n).ok()) {
        Some(n) => Ok((Value::I64(n), len)),
        None => Err(format!(
            "{} is beyond what an integer can hold ({} to {}): a float such as 1e20 can",
            &text[..len],
            i64::MIN,
            i64::MAX
        )),
    }
}

fn digits(text: &str, radix: u32) -> usize {
    text.chars().take_while(|c| c.is_digit(radix)).count()
}

fn suffix(text: &str) -> Option<(u64, usize)> {
    let trimmed = text.trim_start_matches(' ');
    let word = trimmed.chars().take_while(char::is_ascii_alphanumeric).count();
    let (_, bytes) = SUFFIXES.iter().find(|(name, _)| *name == &trimmed[..word])?;
    Some((*bytes, text.len() - trimmed.len() + word))
}
