//! How a workspace is mounted, and how that is written.

use std::{path::PathBuf, time::Duration};

use iov_fuse_kernel::Rings;
use iov_posix::{Level, Options};
use ioverbs::{Error, Result, suggest};

/// How long the kernel takes names and attributes for true, unless somebody says otherwise.
const TTL: Duration = Duration::from_secs(1);
/// The name of the view of metadata, unless somebody says another.
const TAGS: &str = "by";

/// How a workspace is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// What its files mean.
    pub posix: Options,
    /// How long the kernel may take names and attributes for true; not at all where it is strict.
    pub ttl: Duration,
    /// Other users may enter; `/etc/fuse.conf` may have to allow it.
    pub allow_other: bool,
    /// The name, in the root, of the view of metadata as directories; `None`: there is no such view.
    pub tags: Option<String>,
    /// The kernel may read sealed files by itself, where it can and this process is root's.
    pub passthrough: bool,
    /// Whether requests of the kernel go by rings (Linux 6.14), which is faster: where they can, never, or else nothing is mounted.
    pub rings: Rings,
    /// Further options of the kernel, such as `nosuid`, `noexec`, `nodev`, `noatime`.
    pub kernel: Vec<String>,
    /// A program that calls [`look_on`](crate::look_on) for the directory that it is told behind `look-at`: the one that mounts it, itself. Without it a mount that
    /// is killed may leave programs waiting.
    pub looker: Option<PathBuf>,
    /// Shown as the source in the table of mounts: as in `fstab`, so that `mount -a` finds what it has mounted.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            posix: Options::default(),
            ttl: TTL,
            allow_other: false,
            tags: None,
            passthrough: true,
            rings: Rings::Auto,
            kernel: Vec::new(),
            looker: None,
            source: "iov".to_owned(),
        }
    }
}

/// Options that the kernel sees to.
pub(crate) const FLAGS: [&str; 11] =
    ["nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "atime", "relatime", "sync", "dirsync"];

/// What can be said, as a list of it shows it.
const KNOWN: [&str; 17] = [
    "ro",
    "rw",
    "strict",
    "session",
    "ttl=SECONDS",
    "tags",
    "tags=NAME",
    "store=URL",
    "allow_other",
    "default_permissions",
    "passthrough",
    "passthrough=off",
    "io_uring",
    "io_uring=off",
    "io_uring=auto",
    "strictatime",
    "remount",
];

/// What those who read fstab say to each other.
const FSTAB: [&str; 9] = ["defaults", "auto", "noauto", "nouser", "users", "nofail", "_netdev", "async", "lazytime"];

/// Takes a list of options apart, at its commas. `\\,` is a comma of a value, as in libfuse.
pub fn split_options(text: &str) -> Vec<String> {
    let (mut parts, mut letters) = (vec![String::new()], text.chars().peekable());
    while let Some(letter) = letters.next() {
        let last = parts.len() - 1;
        match letter {
            ',' => parts.push(String::new()),
            '\\' => parts[last].push(letters.next_if(|next| matches!(next, ',' | '\\')).unwrap_or(letter)),
            _ => parts[last].push(letter),
        }
    }
    parts
}

/// Options in the style of `fstab` on top of those that there are: `ro`, `rw`, `strict`, `session`, `ttl=SECONDS`,
/// `tags`, `tags=NAME`, `passthrough`, `passthrough=off`, `io_uring`, `io_uring=off`, `allow_other`, and those of the kernel.
pub fn parse_options(options: &mut MountOptions, parts: &[String]) -> Result<()> {
    let says = |word: &str| parts.iter().any(|part| part.trim() == word);
    if says("strict") && says("session") {
        return Err(Error::invalid(
            "strict and session: either everybody sees at once what is written, or not before it is closed",
        ));
    }
    parts.iter().try_for_each(|option| parse_option(options, option))
}

/// One of them.
pub fn parse_option(options: &mut MountOptions, option: &str) -> Result<()> {
    let option = option.trim();
    match option.split_once('=').unwrap_or((option, "")) {
        ("", "") => {}
        ("ro", "") => options.posix.readonly = true,
        ("rw", "") => options.posix.readonly = false,
        ("strict", "") => options.posix.level = Level::Strict,
        ("session", "") => options.posix.level = Level::Session,
        ("allow_other", "") => options.allow_other = true,
        ("passthrough", "" | "on") => options.passthrough = true,
        ("passthrough", "off") => options.passthrough = false,
        ("io_uring", "" | "on") => options.rings = Rings::On,
        ("io_uring", "off") => options.rings = Rings::Off,
        ("io_uring", "auto") => options.rings = Rings::Auto,
        ("tags", "") => options.tags = Some(TAGS.to_owned()),
        ("tags", name) => options.tags = Some(name.to_owned()),
        ("ttl", seconds) => {
            let seconds = seconds.parse().ok().filter(|s: &f64| (0.0..=86_400.0).contains(s));
            let seconds = seconds.ok_or_else(|| Error::invalid(format!("{option:?}: ttl is a number of seconds")))?;
            options.ttl = Duration::from_secs_f64(seconds);
        }
        (word, "") if FSTAB.contains(&word) => {}
        ("user" | "owner" | "group" | "uhelper" | "comment", _) => {}
        // So it is anyway.
        ("default_permissions" | "diratime" | "nodiratime" | "strictatime" | "norelatime", "") => {}
        (flag, "") if FLAGS.contains(&flag) => options.kernel.push(option.to_owned()),
        (name, _) if name.starts_with("x-") => {}
        _ => return Err(unknown(option)),
    }
    Ok(())
}

/// There is no such option; which there are, and which was perhaps meant.
fn unknown(option: &str) -> Error {
    let word = |text: &'static str| text.split('=').next().unwrap_or(text);
    let all: Vec<&str> = KNOWN.into_iter().map(word).chain(FLAGS).chain(FSTAB).collect();
    let given = option.split('=').next().unwrap_or(option);
    let hint = suggest::nearest(given, &all).map_or(String::new(), |near| match near == given {
        // Only its value is not one of it.
        true => String::new(),
        false => match KNOWN.into_iter().find(|known| word(known) == near) {
            Some(known) => format!(", did you mean {known}?"),
            None => format!(", did you mean {near}?"),
        },
    });
    Error::invalid(format!(
        "there is no mount option {option:?}{hint}: {}, {}, and what fstab says to others ({}, user, owner, group, x-…) are known",
        KNOWN.join(", "),
        FLAGS.join(", "),
        FSTAB.join(", "),
    ))
    .with_next("correct the option; `iov mount --help` says what each does")
}
