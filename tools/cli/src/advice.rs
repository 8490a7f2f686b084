//! What to do about an error, in the words of the command line: for a person there is no `iov_wait` and no batch id.

use ioverbs::{Clause, Error, Kind};

/// The next step after an error that nobody has told more about.
pub(crate) fn advice(error: &Error) -> &'static str {
    if let Some(next) = error.next() {
        return next;
    }
    match error.kind() {
        Kind::Invalid => "correct the command; `iov help COMMAND` shows how it is written",
        Kind::Refused => "take the offer, or ask for less",
        Kind::Unsupported => "go another way: this release cannot do it",
        Kind::Version => "update the older one: iov, or the daemon of the store",
        Kind::NotFound => "check the name, or make it",
        Kind::Exists => "choose another name, or remove what is there",
        Kind::NotEmpty => "remove what is in it first",
        Kind::Conflict => "look again at what is there now, then repeat",
        Kind::Busy => "wait, then repeat; `iov why ADDRESS` says what is in the way",
        // Who may use a store is no question of its workspaces, and the message says what to do.
        Kind::Denied if error.clause() == Some(Clause::A2) => {
            "do as is said there; `iov help A2` tells who may use a store"
        }
        Kind::Denied if error.clause() == Some(Clause::O1) && error.detail().contains("has expired") => {
            "its owner extends it with iov ws set WS --expires TIME, as 30d"
        }
        // What the store denies names a clause.
        Kind::Denied if error.clause().is_some() => "ask the owner of the workspace for the rights",
        Kind::Denied
            if ["mounted read-only", "Read-only file system"].iter().any(|said| error.detail().contains(said)) =>
        {
            "choose another place: nothing can be written there; iov --offline DIR reads a store that lies in such a one"
        }
        Kind::Denied => "look at its owner and permissions, as `ls -ld` shows them",
        Kind::Immutable => "write to a new collection",
        Kind::Stale | Kind::Fenced => "repeat the command",
        // Of what a crash has cut short nothing is lost.
        Kind::Corrupt | Kind::Unavailable if error.detail().contains("without --offline") => {
            "repeat the command without --offline"
        }
        Kind::Unavailable => {
            "repeat later; `iov status` says whether the daemon runs, iovd.log in the store what it says"
        }
        Kind::Timeout => "give it longer, as in --timeout 5min; `iov status` says whether the daemon answers",
        Kind::Partial => "see what was told above",
        Kind::Exhausted => "free some, or get more",
        Kind::TooBig => "do less at a time",
        Kind::FileTooBig => "store it with a larger limit, as in -c collection_size=..1TiB",
        Kind::Corrupt => "restore it from a copy; where only parts are damaged `iov get --range` fetches the others",
        Kind::Lost => "make it again: its medium did not promise to keep it",
        Kind::Cancelled => "repeat the command",
        Kind::Forked | Kind::Internal => "this is a defect: report it with the message",
    }
}
