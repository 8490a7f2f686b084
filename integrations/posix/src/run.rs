//! What `iov run` tells the programs that it starts, and these tell those that they start.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// The variable that says it: lines, each a key, a blank and a value.
pub const VARIABLE: &str = "IOVERBS_RUN";

/// Where a workspace appears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// An absolute path without `.`, `..`, double slashes or one at its end.
    pub at: Vec<u8>,
    /// The workspace; none: each workspace of the store appears in it, under its name.
    pub workspace: Option<Vec<u8>>,
}

/// What is told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The URL of the store.
    pub store: String,
    /// Where workspaces appear.
    pub places: Vec<Place>,
    /// Everybody sees at once what is written.
    pub strict: bool,
    /// What is promised of files by where they are made, as `iov mount --rule` says it.
    pub rules: Vec<String>,
    /// Further controls, as `-c` says them.
    pub controls: Vec<String>,
    /// How long a request may take, in nanoseconds.
    pub deadline_ns: i64,
    /// The program that holds locks for several processes ([`crate::holder`]); none: nobody does.
    pub holder: Option<Vec<u8>>,
}

impl Settings {
    /// As a value of the variable. Fails where a path or a name cannot be in one.
    pub fn to_text(&self) -> Result<Vec<u8>, String> {
        let mut text = format!("store {}\ndeadline {}\n", self.store, self.deadline_ns).into_bytes();
        if self.strict {
            text.extend_from_slice(b"strict yes\n");
        }
        if let Some(holder) = &self.holder {
            text.extend([b"holder ", &holder[..], b"\n"].concat());
        }
        for rule in &self.rules {
            text.extend_from_slice(format!("rule {rule}\n").as_bytes());
        }
        for control in &self.controls {
            text.extend_from_slice(format!("control {control}\n").as_bytes());
        }
        for place in &self.places {
            let key: &[u8] = if place.workspace.is_some() { b"workspace " } else { b"all " };
            let name = place.workspace.as_deref().unwrap_or_default();
            // No path has two slashes side by side, so that this tells the two apart.
            text.extend([key, &place.at, b"//", name, b"\n"].concat());
        }
        let single = usize::from(self.strict) + usize::from(self.holder.is_some());
        let lines = 2 + single + self.rules.len() + self.controls.len() + self.places.len();
        if text.contains(&0) || text.iter().filter(|b| **b == b'\n').count() != lines {
            return Err("a line break in a path, a name or a rule cannot be handed to programs".into());
        }
        Ok(text)
    }

    /// Reads a value of the variable; none: nobody has set it so.
    pub fn read(text: &[u8]) -> Option<Settings> {
        let mut settings = Settings::default();
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let at = line.iter().position(|b| *b == b' ')?;
            let (key, value) = (&line[..at], &line[at + 1..]);
            let said = || String::from_utf8(value.to_vec()).ok();
            match key {
                b"store" => settings.store = said()?,
                b"deadline" => settings.deadline_ns = said()?.parse().ok()?,
                b"strict" => settings.strict = true,
                b"holder" => settings.holder = Some(value.to_vec()),
                b"rule" => settings.rules.push(said()?),
                b"control" => settings.controls.push(said()?),
                b"workspace" | b"all" => {
                    let end = value.windows(2).position(|two| two == b"//")?;
                    let workspace = (key == b"workspace").then(|| value[end + 2..].to_vec());
                    settings.places.push(Place { at: value[..end].to_vec(), workspace });
                }
                _ => return None,
            }
        }
        Some(settings)
    }

    /// What this process was told.
    pub fn of_process() -> Option<Settings> {
        Settings::read(std::env::var_os(VARIABLE)?.as_bytes())
    }
}

/// A path that a place can have: absolute, in order, not the root.
pub fn is_in_order(at: &OsStr) -> bool {
    let at = at.as_bytes();
    let name = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
    at.len() > 1 && at.first() == Some(&b'/') && at[1..].split(|b| *b == b'/').all(name)
}

/// What kind of program a file is, by its first bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// The dynamic linker loads it, and this library with it.
    Dynamic,
    /// Nobody loads anything into it.
    Static,
    /// It is written in Go, and calls the kernel without the C library.
    Go,
    /// It is for another kind of processor, as those of 32 bits are, and what is loaded there is not of this one.
    Foreign,
    /// Another program runs it: its path, and what it is told before the path of this one.
    Script(Vec<u8>, Option<Vec<u8>>),
    /// The kernel knows what that is.
    Other,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..N)?.copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(wide))
}

/// Whether the note that Go's linker leaves is among those of a program (`Elf64_Nhdr`) from `at` on, in so many bytes.
fn are_of_go(head: &[u8], at: u64, len: u64) -> bool {
    const NAME: &[u8] = b"Go\0\0";
    let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(head.len());
    let (mut at, end) = (within(at), within(at.saturating_add(len)));
    let notes = &head[..end];
    while let (Some(name), Some(rest)) = (number::<4>(notes, at), number::<4>(notes, at + 4)) {
        let from = at + 12;
        if name == NAME.len() as u64 && notes.get(from..from + NAME.len()) == Some(NAME) {
            return true;
        }
        // Both are of 32 bits.
        at = from + (name.next_multiple_of(4) + rest.next_multiple_of(4)) as usize;
    }
    false
}

impl Program {
    /// What it is, if nothing can be loaded into it that knows of workspaces.
    pub fn cannot_see(&self) -> Option<&'static str> {
        match self {
            Program::Static => Some("a static program, into which nothing can be loaded"),
            Program::Go => Some("a program in Go, which calls the kernel without the C library"),
            Program::Foreign => Some("a program of 32 bits or for another processor, into which nothing can be loaded"),
            Program::Dynamic | Program::Script(..) | Program::Other => None,
        }
    }

    /// Of a file that begins with these bytes; its first page is enough.
    pub fn of(head: &[u8]) -> Program {
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
            let end = line.iter().position(|b| b" \t".contains(b)).unwrap_or(line.len());
            let rest = line[end..].trim_ascii();
            return Program::Script(line[..end].to_vec(), (!rest.is_empty()).then(|| rest.to_vec()));
        }
        // `Elf64_Ehdr` and `Elf64_Phdr` of elf(5), of little end.
        const INTERP: u64 = 3;
        const NOTE: u64 = 4;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return if head.starts_with(b"\x7fELF") && head.len() > 5 { Program::Foreign } else { Program::Other };
        }
        let headers = || {
            let (from, size, count) = (number::<8>(head, 32)?, number::<2>(head, 54)?, number::<2>(head, 56)?);
            let from = usize::try_from(from).ok().filter(|from| *from <= head.len())?;
            let header = |n| {
                let at = from + n * size as usize;
                Some((number::<4>(head, at)?, number::<8>(head, at + 8)?, number::<8>(head, at + 32)?))
            };
            (0..count as usize).map(header).collect::<Option<Vec<_>>>()
        };
        let Some(headers) = headers() else { return Program::Other };
        match headers.iter().any(|(kind, ..)| *kind == INTERP) {
            false => Program::Static,
            true if headers.iter().any(|(kind, at, len)| *kind == NOTE && are_of_go(head, *at, *len)) => Program::Go,
            true => Program::Dynamic,
        }
    }
}
