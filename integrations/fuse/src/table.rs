//! What the system says of what is mounted. Paths and sources there are any bytes: who else mounts what is nobody's business here.

use std::{os::unix::ffi::OsStrExt, path::Path};

use ioverbs::{Error, Result};

/// What is mounted on a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounted {
    /// It is a workspace.
    pub(crate) is_ours: bool,
    /// How it is mounted there.
    options: Vec<Vec<u8>>,
    /// How the file system is mounted everywhere.
    common: Vec<Vec<u8>>,
}

/// Words for a flag that is set, and for one that is not.
const FLAGS: [(&str, &str); 3] = [("nosuid", "suid"), ("nodev", "dev"), ("noexec", "exec")];

impl Mounted {
    /// What is mounted on a directory now, also where nobody answers. Of several it is the one that hides the others.
    pub(crate) fn on(at: &Path) -> Result<Option<Mounted>> {
        let at = match at.canonicalize() {
            Ok(at) => at,
            Err(_) => std::path::absolute(at).map_err(Error::from)?,
        };
        let table = std::fs::read("/proc/self/mountinfo").map_err(Error::from)?;
        Ok(Mounted::of(&table, at.as_os_str().as_bytes()))
    }

    /// The same, by a table.
    pub(crate) fn of(table: &[u8], at: &[u8]) -> Option<Mounted> {
        let read = |line: &[u8]| {
            let mut fields = line.split(|b| *b == b' ');
            let is_there = fields.by_ref().nth(4).is_some_and(|path| unescaped(path) == at);
            let options = list(fields.next().filter(|_| is_there)?);
            // Behind a dash: the kind, the source, the options of all.
            let kind = fields.by_ref().skip_while(|field| *field != b"-").nth(1)?;
            Some(Mounted { is_ours: kind == b"fuse.iov", options, common: list(fields.nth(1)?) })
        };
        table.split(|b| *b == b'\n').filter_map(read).next_back()
    }

    /// Nothing can be changed in it.
    pub(crate) fn is_readonly(&self) -> bool {
        self.has(b"ro")
    }

    /// Whether it is mounted with this option, as the table writes it.
    pub(crate) fn has(&self, option: &[u8]) -> bool {
        self.options.iter().chain(&self.common).any(|said| said == option)
    }

    /// Its flags, as `-o` takes them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let says = |options: &[Vec<u8>], word: &str| options.iter().any(|option| option == word.as_bytes());
        let own = FLAGS.iter().map(|(on, off)| if says(&self.options, on) { *on } else { *off });
        let times = ["noatime", "relatime"].into_iter().filter(|word| says(&self.options, word));
        let common = ["sync", "dirsync"].into_iter().filter(|word| says(&self.common, word));
        own.chain(times).chain(common).map(str::to_owned).collect()
    }

    /// Whether this user has mounted it.
    pub(crate) fn is_of(&self, uid: u32) -> bool {
        self.has(format!("user_id={uid}").as_bytes())
    }
}

fn list(options: &[u8]) -> Vec<Vec<u8>> {
    options.split(|b| *b == b',').map(<[u8]>::to_vec).collect()
}

/// A path of the table, in which blanks and others are octal numbers.
pub(crate) fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = path.get(at) {
        let digits = path.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal.filter(|_| *byte == b'\\') {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}
