//! What a mount says of itself, and changing it while it is there.

use std::path::{Path, PathBuf};

use iov_fuse_kernel::{MountTable, Rings};
use iov_posix::Level;
use ioverbs::{Error, Result, Uuid, Which, Workspace};

use crate::{
    mount::not_ours,
    options::{FLAGS, MountOptions, parse_option},
    table::Mounted,
};

/// The attribute of the root by which a mount tells that. It is in no list, so that nothing copies it.
pub(crate) const ATTRIBUTE: &str = "system.iov.mount";
/// More than it ever has: names and URLs are shorter.
const LENGTH: usize = 64 << 10;

/// What is mounted, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Running {
    pub(crate) workspace: Uuid,
    name: Vec<u8>,
    store: String,
    /// As `-o` takes them.
    options: Vec<String>,
}

impl Running {
    pub(crate) fn new(ws: &Workspace, options: &MountOptions) -> Running {
        let level = if options.posix.level == Level::Strict { "strict" } else { "session" };
        let rings = match options.rings {
            Rings::Auto => "auto",
            Rings::Off => "off",
            Rings::On => "on",
        };
        let passthrough = if options.passthrough { "on" } else { "off" };
        let mut said = vec![
            level.to_owned(),
            format!("ttl={}", options.ttl.as_secs_f64()),
            format!("passthrough={passthrough}"),
            format!("io_uring={rings}"),
        ];
        said.extend(options.tags.as_ref().map(|name| format!("tags={name}")));
        said.extend(options.allow_other.then(|| "allow_other".to_owned()));
        let name = ws.name().as_bytes().to_vec();
        // Who asks may be in another directory.
        let url = ws.session().url();
        let store = place(url).map_or_else(|| url.to_owned(), |dir| format!("file:{}", dir.display()));
        Running { workspace: ws.uuid(), name, store, options: said }
    }

    /// As the attribute has it: no name, URL or option has a NUL in it.
    pub(crate) fn to_text(&self) -> Vec<u8> {
        let mut parts =
            vec![self.workspace.to_string().into_bytes(), self.name.clone(), self.store.clone().into_bytes()];
        parts.extend(self.options.iter().map(|option| option.clone().into_bytes()));
        parts.join(&0)
    }

    pub(crate) fn read(text: &[u8]) -> Option<Running> {
        let mut parts = text.split(|b| *b == 0);
        let mut words = parts.by_ref().take(3);
        let (workspace, name, store) = (words.next()?, words.next()?, words.next()?);
        let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(Running {
            workspace: Uuid::parse(&said(workspace)?).ok()?,
            name: name.to_vec(),
            store: said(store)?,
            options: parts.map(said).collect::<Option<_>>()?,
        })
    }

    /// Of what is mounted on a directory; none: it does not say, as one of an older release, or one of somebody who lets nobody in.
    pub(crate) fn of(at: &Path) -> Result<Option<Running>> {
        let mut text = vec![0; LENGTH];
        match rustix::fs::getxattr(at, ATTRIBUTE, &mut text[..]) {
            Ok(len) => Ok(Running::read(&text[..len])),
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ACCESS) => Ok(None),
            Err(e) => {
                let has_died = matches!(e, rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED);
                let error = Error::from(std::io::Error::from(e)).context(at.display());
                Err(if has_died { error.with_next("iov umount DIR, and mount it anew") } else { error })
            }
        }
    }

    /// Fails where something else is wanted than is mounted.
    fn check(&self, at: &Path, wanted: &Wanted<'_>, options: &[String]) -> Result<()> {
        let is_it = match wanted.workspace {
            Which::Name(name) => name.as_bytes() == self.name,
            Which::Uuid(uuid) => *uuid == self.workspace,
        };
        let at = at.display();
        if !is_it {
            let name = String::from_utf8_lossy(&self.name);
            return Err(Error::invalid(format!(
                "on {at} the workspace {name:?} is mounted, and a remount shows no other one: unmount it first"
            )));
        }
        if let Some(store) = wanted.store.filter(|store| !is_same(store, &self.store)) {
            return Err(Error::invalid(format!(
                "what is mounted on {at} is of the store {}, and a remount shows none of {store}: unmount it first",
                self.store
            )));
        }
        let mut now = MountOptions::default();
        self.options.iter().try_for_each(|option| parse_option(&mut now, option))?;
        for option in options {
            let mut then = now.clone();
            parse_option(&mut then, option)?;
            if !is_as(&now, &then) {
                return Err(Error::invalid(format!(
                    "{option}: a remount cannot change that: it changes ro, rw, {} and async",
                    FLAGS.join(", ")
                ))
                .with_next("iov umount DIR, and mount it anew"));
            }
        }
        Ok(())
    }
}

/// Whether two are the same but for what the kernel sees to.
fn is_as(one: &MountOptions, other: &MountOptions) -> bool {
    let what = |o: &MountOptions| (o.posix.level, o.ttl, o.allow_other, o.tags.clone(), o.passthrough, o.rings);
    what(one) == what(other)
}

/// Where a store in files is.
fn place(url: &str) -> Option<PathBuf> {
    url.strip_prefix("file:").and_then(|dir| Path::new(dir).canonicalize().ok())
}

/// Whether two URLs lead to the same store.
fn is_same(one: &str, other: &str) -> bool {
    one == other || place(one).is_some_and(|one| Some(one) == place(other))
}

/// What somebody who mounts takes to be there already.
pub struct Wanted<'a> {
    /// The workspace.
    pub workspace: &'a Which,
    /// The store; none: whichever it is.
    pub store: Option<&'a str>,
}

/// Changes what the kernel sees to of a workspace that is mounted, by options of which `remount` is one: `ro`, `rw`, `nosuid` and such. What they do not name
/// stays as it is. What is no business of the kernel's may be named as it is, as `mount` does with all that fstab has, and not otherwise.
pub fn remount(at: &Path, wanted: &Wanted<'_>, options: &[String]) -> Result<()> {
    let Some(mounted) = Mounted::on(at)?.filter(|mounted| mounted.is_ours) else { return Err(not_ours(at)) };
    let mut table = MountTable { readonly: mounted.is_readonly(), options: mounted.flags(), ..MountTable::default() };
    let mut others = Vec::new();
    for option in options {
        match option.trim() {
            "ro" => table.readonly = true,
            "rw" => table.readonly = false,
            "async" => table.options.retain(|flag| flag != "sync"),
            flag if FLAGS.contains(&flag) => table.options.push(flag.to_owned()),
            // The kernel's table shows it so.
            other if other == "remount" || mounted.has(other.as_bytes()) => {}
            other => others.push(other.to_owned()),
        }
    }
    // What is misspelt is not there, whatever is mounted.
    others.iter().try_for_each(|option| parse_option(&mut MountOptions::default(), option))?;
    // What the kernel alone sees to asks for nobody who may not answer.
    let is_kernels = others.is_empty() && table.readonly;
    let running = match Running::of(at) {
        Err(_) if is_kernels => None,
        found => found?,
    };
    if is_kernels && running.is_none() {
        return iov_fuse_kernel::remount(at, &table)
            .map_err(|e| Error::from(e).context(format!("remounting {}", at.display())));
    }
    let Some(running) = running else {
        return Err(Error::unsupported(format!("what is mounted on {} does not say what it is", at.display()))
            .with_next("iov umount DIR, and mount it anew"));
    };
    running.check(at, wanted, &others)?;
    iov_fuse_kernel::remount(at, &table).map_err(|e| Error::from(e).context(format!("remounting {}", at.display())))
}
