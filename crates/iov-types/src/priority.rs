//! What comes first where several ask at the same time.

use crate::{Error, Result};

/// How soon a request is served where others want to be served too. It changes when something happens, never what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Priority {
    /// Somebody waits for it.
    #[default]
    Foreground,
    /// Nobody waits for it just now: copies, checks, what is drained. It has a few threads of its own at a daemon, gives way to what
    /// somebody waits for, and always gets on.
    Background,
}

impl Priority {
    /// All of them, the first one first.
    pub const ALL: [Priority; 2] = [Priority::Foreground, Priority::Background];

    /// Its name, as in settings.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Foreground => "foreground",
            Priority::Background => "background",
        }
    }

    /// The one of this name.
    pub fn parse(name: &str) -> Result<Priority> {
        Priority::ALL
            .into_iter()
            .find(|priority| priority.name() == name)
            .ok_or_else(|| Error::invalid(format!("no priority {name:?}: it is foreground or background")))
    }
}
