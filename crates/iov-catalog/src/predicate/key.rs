//! What a condition can be about: user keys and system keys (O4).

use iov_types::Metadata;

/// Facts that the system keeps about a collection, group or workspace (O4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SystemKey {
    /// A name; text, or bytes where it is not UTF-8.
    Name,
    /// The identity, as text `uuid:…`.
    Uuid,
    /// Length in bytes.
    Size,
    /// Made at.
    Ctime,
    /// Bytes last changed at.
    Mtime,
    /// The owner's user id.
    Owner,
    /// Permission bits.
    Mode,
    /// The controls, as text.
    Controls,
    /// The layout, as text.
    Layout,
    /// The checksum of the bytes, as text.
    Checksum,
    /// `staging`, `open` or `sealed`.
    State,
    /// `collection`, `group` or `workspace`.
    Kind,
    /// The group that holds the name, as text `uuid:…`; nil = the root.
    Group,
}

/// What type a system key's value has, so that a comparison that can never hold is an error and not an empty result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Text or bytes.
    Name,
    /// A UUID in text.
    Uuid,
    /// An integer.
    Number,
    /// A timestamp.
    Time,
    /// Text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl SystemKey {
    /// Every system key.
    pub const ALL: [SystemKey; 13] = [
        SystemKey::Name,
        SystemKey::Uuid,
        SystemKey::Size,
        SystemKey::Ctime,
        SystemKey::Mtime,
        SystemKey::Owner,
        SystemKey::Mode,
        SystemKey::Controls,
        SystemKey::Layout,
        SystemKey::Checksum,
        SystemKey::State,
        SystemKey::Kind,
        SystemKey::Group,
    ];

    /// The key as programs write it.
    pub const fn text(self) -> &'static str {
        match self {
            SystemKey::Name => "iov.name",
            SystemKey::Uuid => "iov.uuid",
            SystemKey::Size => "iov.size",
            SystemKey::Ctime => "iov.ctime",
            SystemKey::Mtime => "iov.mtime",
            SystemKey::Owner => "iov.owner",
            SystemKey::Mode => "iov.mode",
            SystemKey::Controls => "iov.controls",
            SystemKey::Layout => "iov.layout",
            SystemKey::Checksum => "iov.checksum",
            SystemKey::State => "iov.state",
            SystemKey::Kind => "iov.kind",
            SystemKey::Group => "iov.group",
        }
    }

    /// The key of a text.
    pub fn from_text(text: &str) -> Option<SystemKey> {
        SystemKey::ALL.into_iter().find(|k| k.text() == text)
    }

    pub(crate) const fn class(self) -> Class {
        match self {
            SystemKey::Name => Class::Name,
            SystemKey::Uuid | SystemKey::Group => Class::Uuid,
            SystemKey::Size | SystemKey::Owner | SystemKey::Mode => Class::Number,
            SystemKey::Ctime | SystemKey::Mtime => Class::Time,
            SystemKey::Controls | SystemKey::Layout | SystemKey::Checksum => Class::Text,
            SystemKey::State => Class::Word(&["staging", "open", "sealed"]),
            SystemKey::Kind => Class::Word(&["collection", "group", "workspace"]),
        }
    }
}

impl std::fmt::Display for SystemKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// A user key or a system key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// A pair that a program put.
    User(String),
    /// A fact that the system keeps.
    System(SystemKey),
}

impl Key {
    /// Reads a key as a program writes it; the message says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Key, String> {
        if text.starts_with("iov.") {
            return SystemKey::from_text(text).map(Key::System).ok_or_else(|| {
                let all: Vec<_> = SystemKey::ALL.into_iter().map(SystemKey::text).collect();
                format!("there is no system key {text:?}: they are {}", all.join(", "))
            });
        }
        match Metadata::check_key(text) {
            Ok(()) => Ok(Key::User(text.to_owned())),
            Err(e) => Err(e.detail().to_owned()),
        }
    }
}

/// Words of the grammar, in lower or upper case; a key of that name needs back-quotes.
pub(crate) const WORDS: [&str; 10] = ["and", "or", "not", "in", "exists", "true", "false", "inf", "nan", "now"];

/// The word of the grammar that this is.
pub(crate) fn word(text: &str) -> Option<&'static str> {
    WORDS
        .into_iter()
        .find(|w| *w == text || w.bytes().eq(text.bytes().map(|b| b.to_ascii_lowercase())) && is_upper(text))
}

fn is_upper(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_uppercase())
}

pub(crate) fn begins_bare(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

pub(crate) fn continues_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/')
}

impl std::fmt::Display for Key {
    /// As the predicate text has it: back-quoted where the bare form would be read as something else.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Key::System(k) => return f.write_str(k.text()),
            Key::User(text) => text,
        };
        let bare = text.starts_with(begins_bare) && text.chars().all(continues_bare) && word(text).is_none();
        if bare { f.write_str(text) } else { super::display::quoted(f, text, '`') }
    }
}
