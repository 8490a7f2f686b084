//! Which libraries a program or library is linked with, and where the dynamic linker looks for them: `elf(5)` and `ld.so(8)`.

use object::{
    LittleEndian,
    elf::{self, FileHeader64},
    read::elf::{Dyn, FileHeader, ProgramHeader},
};

#[cfg(test)]
mod tests;

/// What the dynamic linker reads in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Linked {
    /// The libraries it needs, by their names, in order.
    pub needed: Vec<Vec<u8>>,
    /// The name under which others need it; none: that of its file.
    pub soname: Option<Vec<u8>>,
    /// Where what it needs is looked for before anywhere else, also what that needs.
    pub rpath: Vec<Vec<u8>>,
    /// Where what it needs is looked for after `LD_LIBRARY_PATH`. `rpath` says nothing then.
    pub runpath: Option<Vec<Vec<u8>>>,
}

/// The directories of a list that is separated by colons; an empty one is that of the process.
pub fn directories(list: &[u8]) -> Vec<Vec<u8>> {
    let one = |dir: &[u8]| if dir.is_empty() { b".".to_vec() } else { dir.to_vec() };
    if list.is_empty() { Vec::new() } else { list.split(|b| *b == b':').map(one).collect() }
}

/// The directories that `LD_LIBRARY_PATH` names for a program that lies in `origin`: separated by semicolons, too.
pub fn library_path(list: &[u8], origin: &[u8]) -> Vec<Vec<u8>> {
    let list: Vec<u8> = list.iter().map(|byte| if *byte == b';' { b':' } else { *byte }).collect();
    directories(&list).iter().filter_map(|dir| expanded(dir, origin)).collect()
}

/// A directory as it is written in a file that lies in `origin`; none: it names what only the linker knows.
fn expanded(dir: &[u8], origin: &[u8]) -> Option<Vec<u8>> {
    let mut expanded = Vec::new();
    let mut rest = dir;
    while let Some(at) = rest.iter().position(|b| *b == b'$') {
        expanded.extend_from_slice(&rest[..at]);
        let name = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find(|name| rest[at..].starts_with(name))?;
        expanded.extend_from_slice(origin);
        rest = &rest[at + name.len()..];
    }
    expanded.extend_from_slice(rest);
    Some(expanded)
}

impl Linked {
    /// Of a file of this kind of machine; none: it is none that the linker would take.
    pub fn of(file: &[u8]) -> Option<Linked> {
        let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let machine = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
        if header.e_machine(endian) != machine || ![elf::ET_DYN, elf::ET_EXEC].contains(&header.e_type(endian)) {
            return None;
        }
        // By what is loaded, as the linker: sections may have been stripped.
        let segments = header.program_headers(endian, file).ok()?;
        let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, file).ok().flatten());
        let entries = dynamic.unwrap_or_default().iter().map(|entry| (entry.d_tag(endian), entry.d_val(endian)));
        let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != elf::DT_NULL).collect();
        let value = |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        let (at, len) = (value(elf::DT_STRTAB).unwrap_or(0), value(elf::DT_STRSZ).unwrap_or(0));
        let loaded = |at, len| {
            let loads = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
            loads.filter_map(|segment| segment.data_range(endian, file, at, len).ok().flatten()).next()
        };
        let strings = if len == 0 { &[][..] } else { loaded(at, len)? };
        let string = |at: u64| {
            let rest = strings.get(usize::try_from(at).ok()?..)?;
            Some(rest[..rest.iter().position(|b| *b == 0)?].to_vec())
        };
        let list = |tag| value(tag).and_then(string).map(|list| directories(&list));
        Some(Linked {
            needed: entries
                .iter()
                .filter(|(tag, _)| *tag == elf::DT_NEEDED)
                .filter_map(|(_, at)| string(*at))
                .collect(),
            soname: value(elf::DT_SONAME).and_then(string),
            rpath: list(elf::DT_RPATH).unwrap_or_default(),
            runpath: list(elf::DT_RUNPATH),
        })
    }

    /// Where that which it needs, and what that needs, is looked for first: its own directories, if it lies in `origin`, and those of whoever needs it.
    pub fn first(&self, origin: &[u8], of_others: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let own = if self.runpath.is_none() { &self.rpath[..] } else { &[] };
        own.iter().filter_map(|dir| expanded(dir, origin)).chain(of_others.iter().cloned()).collect()
    }

    /// Where what it needs is looked for before where the system keeps libraries: `of_others` is [`Linked::first`] of whoever needs it,
    /// `library_path` what `LD_LIBRARY_PATH` says.
    pub fn searched(&self, origin: &[u8], of_others: &[Vec<u8>], library_path: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let first = if self.runpath.is_none() { self.first(origin, of_others) } else { Vec::new() };
        let last = self.runpath.iter().flatten().filter_map(|dir| expanded(dir, origin));
        first.into_iter().chain(library_path.iter().cloned()).chain(last).collect()
    }
}
