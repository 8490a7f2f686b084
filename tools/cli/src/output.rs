//! What commands print: bytes as they are for programs, printable text for people, JSON where it is asked for.

use std::io::Write;

use serde_json::Value as Json;

use crate::failure::{Done, Failure};

/// A stream that a command writes to.
pub(crate) struct Out {
    inner: Box<dyn Write>,
    terminal: bool,
}

impl Out {
    /// A stream; on a terminal nothing is written that could steer it.
    pub(crate) fn new(inner: Box<dyn Write>, terminal: bool) -> Out {
        Out { inner, terminal }
    }

    /// Whether a person looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Done {
        self.inner.write_all(bytes).map_err(failed)
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Done {
        writeln!(self.inner, "{text}").map_err(failed)
    }

    /// Writes a name: as it is for programs, printable for people.
    pub(crate) fn name(&mut self, name: &[u8], end: &[u8]) -> Done {
        if self.terminal {
            self.bytes(printable(name).as_bytes())?;
        } else {
            self.bytes(name)?;
        }
        self.bytes(end)
    }

    /// Hands on what is buffered.
    pub(crate) fn flush(&mut self) -> Done {
        self.inner.flush().map_err(failed)
    }
}

fn failed(e: std::io::Error) -> Failure {
    match e.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Pipe,
        _ => ioverbs::Error::from(e).context("the output").into(),
    }
}

/// A name that can be shown: control characters and what is not UTF-8 are written as `\x1b`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    out
}

/// A word as a shell takes it, for commands that a person is to copy: in quotes unless every shell reads it as it is.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:,@%+".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        // What has no text is written byte by byte, as bash and zsh read it.
        _ => {
            let one = |b: &u8| if plain(b) { char::from(*b).to_string() } else { format!("\\x{b:02x}") };
            format!("$'{}'", bytes.iter().map(one).collect::<String>())
        }
    }
}

/// A name in JSON: text, or `{"hex": "…"}` where it is none.
pub(crate) fn json_name(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "hex": crate::pairs::hex(bytes) }),
    }
}

/// A JSON array that is written item by item, one on a line, so that a long listing need not be held.
#[derive(Default)]
pub(crate) struct JsonList {
    items: u64,
}

impl JsonList {
    /// Writes one item.
    pub(crate) fn item(&mut self, out: &mut Out, item: &Json) -> Done {
        out.bytes(if self.items == 0 { b"[\n" } else { b",\n" })?;
        self.items += 1;
        out.bytes(item.to_string().as_bytes())
    }

    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Ends the array.
    pub(crate) fn end(&self, out: &mut Out) -> Done {
        out.bytes(if self.items == 0 { b"[]\n" } else { b"\n]\n" })
    }
}

/// Lines of two columns, the first as wide as its widest.
#[derive(Default)]
pub(crate) struct Columns(Vec<(String, String)>);

impl Columns {
    /// Adds a line.
    pub(crate) fn add(&mut self, left: impl Into<String>, right: impl Into<String>) {
        self.0.push((left.into(), right.into()));
    }

    /// Writes them.
    pub(crate) fn print(&self, out: &mut Out) -> Done {
        let width = self.0.iter().map(|(l, _)| l.chars().count()).max().unwrap_or(0);
        for (left, right) in &self.0 {
            out.line(format_args!("{left:<width$}  {right}"))?;
        }
        Ok(())
    }
}
