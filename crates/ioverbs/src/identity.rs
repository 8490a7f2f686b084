//! Who this process is, and names of users and groups.

use std::ffi::CString;

use iov_store::seam;
use iov_types::{AccessList, Caller, Error, Result};

/// The identity of this process, with a new session.
pub fn caller() -> Caller {
    // SAFETY: these calls have no preconditions; `groups` has room for as many ids as it says.
    let (uid, gid, groups) = unsafe {
        let mut groups = vec![0; libc::getgroups(0, std::ptr::null_mut()).max(0) as usize];
        let n = libc::getgroups(groups.len() as i32, groups.as_mut_ptr()).max(0);
        groups.truncate(n as usize);
        (libc::geteuid(), libc::getegid(), groups)
    };
    let session = seam::new_uuid();
    Caller { uid, gid, groups, session, holder: session }
}

/// Bytes for what is said of a user or a group, at first and at most: a group of thousands of members has long lines.
const ROOM: std::ops::RangeInclusive<usize> = 16 << 10..=64 << 20;

fn lookup(group: bool, name: &str) -> Option<u32> {
    lookup_in(*ROOM.start(), group, name)
}

/// The same, with so much room at first.
fn lookup_in(room: usize, group: bool, name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buf = vec![0; room];
    loop {
        // SAFETY: all pointers are to live memory of the stated size; the result is read only after success.
        let (code, found) = unsafe {
            if group {
                let (mut entry, mut found) = (std::mem::zeroed(), std::ptr::null_mut());
                let code = libc::getgrnam_r(name.as_ptr(), &mut entry, buf.as_mut_ptr(), buf.len(), &mut found);
                (code, (!found.is_null()).then_some(entry.gr_gid))
            } else {
                let (mut entry, mut found) = (std::mem::zeroed(), std::ptr::null_mut());
                let code = libc::getpwnam_r(name.as_ptr(), &mut entry, buf.as_mut_ptr(), buf.len(), &mut found);
                (code, (!found.is_null()).then_some(entry.pw_uid))
            }
        };
        match code {
            0 => return found,
            libc::ERANGE if buf.len() < *ROOM.end() => buf.resize(buf.len() * 2, 0),
            libc::EINTR => {}
            _ => return None,
        }
    }
}

/// The user of `"alice"` or `"uid:1000"`.
pub fn user_id(text: &str) -> Result<u32> {
    let id = match text.strip_prefix("uid:") {
        Some(number) => number.parse().ok(),
        None => lookup(false, text),
    };
    id.ok_or_else(|| Error::invalid(format!("no user {text:?} is known here; it is a login name or uid:NUMBER")))
}

/// Reads `"user:bob=read,group:cfd=write"` with the users and groups of this machine.
pub fn parse_access(text: &str) -> Result<AccessList> {
    AccessList::parse(text, &lookup)
}

/// The executable's name.
pub(crate) fn program() -> String {
    let exe = std::env::current_exe().ok();
    exe.as_deref().and_then(|p| p.file_name()).map_or_else(|| "unknown".into(), |n| n.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
