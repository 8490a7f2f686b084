//! Glob patterns: `*`, `?`, `[a-z]`, `[!a]`, and a backslash before what is meant literally.

/// Longest pattern: with [`iov_types::limits::VALUE_BYTES`] it bounds the steps that one match can take.
pub(crate) const PATTERN_BYTES: usize = 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    One(char),
    AnyOne,
    AnyMany,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// A compiled pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Glob {
    text: String,
    pieces: Vec<Piece>,
}

impl Glob {
    /// Compiles a pattern; the message says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Glob, String> {
        if text.len() > PATTERN_BYTES {
            return Err(format!("the pattern has {} bytes, the limit is {PATTERN_BYTES}", text.len()));
        }
        let mut pieces = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            pieces.push(match c {
                '*' if pieces.last() == Some(&Piece::AnyMany) => continue,
                '*' => Piece::AnyMany,
                '?' => Piece::AnyOne,
                '[' => class(&mut chars)?,
                '\\' => Piece::One(escaped(&mut chars)?),
                c => Piece::One(c),
            });
        }
        Ok(Glob { text: text.to_owned(), pieces })
    }

    /// The pattern.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What every match begins with.
    pub(crate) fn literal_prefix(&self) -> String {
        self.pieces.iter().map_while(|p| if let Piece::One(c) = p { Some(*c) } else { None }).collect()
    }

    /// Whether the whole of `bytes` matches. A byte that is not UTF-8 counts as one character that only `?`, `*` and a
    /// negated class match.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        let (mut piece, mut at) = (0, 0);
        // Where to go on after a mismatch: behind the last `*`, one character further than it was tried with.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.pieces.get(piece) {
                Some(Piece::AnyMany) => {
                    piece += 1;
                    retry = Some((piece, at));
                    continue;
                }
                Some(p) => {
                    if let Some((c, len)) = first_char(&bytes[at..])
                        && p.takes(c)
                    {
                        piece += 1;
                        at += len;
                        continue;
                    }
                }
                None if at == bytes.len() => return true,
                None => {}
            }
            match retry.and_then(|(piece, from)| first_char(&bytes[from..]).map(|(_, len)| (piece, from + len))) {
                Some(next) => {
                    retry = Some(next);
                    (piece, at) = next;
                }
                None => return false,
            }
        }
    }
}

impl Piece {
    fn takes(&self, c: Option<char>) -> bool {
        match (self, c) {
            (Piece::AnyOne | Piece::AnyMany, _) => true,
            (Piece::One(want), c) => c == Some(*want),
            (Piece::Class { negated, .. }, None) => *negated,
            (Piece::Class { negated, ranges }, Some(c)) => {
                ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *negated
            }
        }
    }
}

/// The first character, `None` for a byte that is not UTF-8, and its length.
fn first_char(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let first = *bytes.first()?;
    let len = match first {
        0..=0x7f => return Some((Some(first as char), 1)),
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    let c = bytes.get(..len).and_then(|b| std::str::from_utf8(b).ok()).and_then(|s| s.chars().next());
    Some((c, if c.is_some() { len } else { 1 }))
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Result<char, String> {
    chars.next().ok_or_else(|| "the pattern ends with a lone backslash".to_owned())
}

fn class(chars: &mut std::str::Chars<'_>) -> Result<Piece, String> {
    let open = || "the pattern has a '[' without its ']' (a literal '[' is '\\\\[' here)".to_owned();
    let negated = chars.as_str().starts_with('!');
    if negated {
        chars.next();
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let c = match chars.next().ok_or_else(open)? {
            ']' if ranges.is_empty() => return Err("the pattern has an empty class '[]'".to_owned()),
            ']' => return Ok(Piece::Class { negated, ranges }),
            '^' if ranges.is_empty() && !negated => {
                return Err("the pattern negates a class by '^': write '[!…]'".to_owned());
            }
            '\\' => escaped(chars)?,
            c => c,
        };
        let rest = chars.as_str();
        let last = if rest.starts_with('-') && !rest.starts_with("-]") {
            chars.next();
            match chars.next().ok_or_else(open)? {
                '\\' => escaped(chars)?,
                last => last,
            }
        } else {
            c
        };
        if last < c {
            return Err(format!("the range '{c}-{last}' in the pattern is the wrong way round"));
        }
        ranges.push((c, last));
    }
}
