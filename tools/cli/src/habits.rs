//! What `mount` calls: as `mount.fuse.iov SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` this program is `iov mount`.

use std::{ffi::OsString, path::Path};

/// The name by which `mount -t fuse.iov` finds a helper.
const HELPER: &str = "mount.fuse.iov";

/// The command line that is meant, by the name under which the program was called. `None`: there is nothing to do, as `-f` says.
pub(crate) fn translate(args: Vec<OsString>) -> Option<Vec<OsString>> {
    let called = args.first().and_then(|name| Path::new(name).file_name());
    if called.is_none_or(|name| name != HELPER) {
        return Some(args);
    }
    let mut out: Vec<OsString> = vec!["iov".into(), "mount".into()];
    let mut args = args.into_iter().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => out.extend(["-o".into(), args.next().unwrap_or_default()]),
            // What it is called, and in which namespace: that is said by how it was called.
            Some("-t" | "-N") => drop(args.next()),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                if flags.contains('f') {
                    return None;
                }
            }
            _ => out.push(arg),
        }
    }
    Some(out)
}
