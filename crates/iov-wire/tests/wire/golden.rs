//! The bytes of protocol version 1, pinned. What once went over a wire reads the same for ever: these files are added to,
//! never changed. `UPDATE_GOLDEN=1` writes those that are missing.

use std::path::PathBuf;

use iov_types::{
    Place, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};
use iov_wire::{Body, Header, Verb, Wire, frame, messages::*};

use crate::examples;

fn named(verb: Verb, suffix: &str) -> PathBuf {
    let number = verb.number();
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v1-{number:02}-{}{suffix}.bin", verb.name()))
}

/// The newest bytes of a verb: an answer that got a field has a file for each form that it was ever sent in.
fn path(verb: Verb) -> PathBuf {
    use Verb::*;
    let newest = match verb {
        Catalog => "-14",
        CatalogAnswer => "-13",
        Welcome => "-6",
        GrantAnswer | Hello => "-4",
        Grant => "-3",
        Join | Object | Resume | ResumeAnswer => "-2",
        _ => "",
    };
    named(verb, newest)
}

fn golden(verb: Verb) -> Vec<u8> {
    let path = path(verb);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; UPDATE_GOLDEN=1 writes a new one", path.display()))
}

#[test]
fn every_verb_is_written_as_it_was() {
    let frames = examples::frames();
    assert_eq!(frames.iter().map(|(verb, _)| *verb).collect::<Vec<_>>(), Verb::ALL);
    for (verb, frame) in frames {
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !path(verb).exists() {
            std::fs::write(path(verb), &frame).expect("the folder of golden bytes is there");
        }
        assert_eq!(frame, golden(verb), "{}: the encoding of version 1 has changed", verb.name());
    }
}

fn reads_as<B: Body + PartialEq + std::fmt::Debug>(expected: B) {
    reads(&golden(B::VERB), expected);
}

fn reads<B: Body + PartialEq + std::fmt::Debug>(bytes: &[u8], expected: B) {
    let (head, body) = bytes.split_first_chunk::<{ frame::HEADER_BYTES }>().expect("a whole header");
    let header = Header::decode(head).expect("a header of version 1");
    assert_eq!((header.version, header.verb()), (1, Ok(B::VERB)));
    assert_eq!(header.body::<B>(body), Ok(expected));
}

#[test]
fn version_1_is_read_for_ever() {
    reads_as(examples::hello());
    reads_as(examples::welcome());
    reads_as(examples::catalog_request());
    reads_as(examples::catalog_answer());
    reads_as(examples::object_request());
    reads_as(examples::object_answer());
    reads_as(examples::grant_request());
    reads_as(examples::grant_answer());
    reads_as(examples::recall());
    reads_as(examples::give_back());
    reads_as(examples::renew());
    reads_as(Goodbye);
    reads_as(examples::fault());
    reads_as(StatusRequest);
    reads_as(examples::status_answer());
    reads_as(Shutdown);
    reads_as(examples::resume());
    reads_as(examples::resume_answer());
    reads_as(examples::sums_request());
    reads_as(examples::sums_answer());
    reads_as(examples::take_back());
    reads_as(examples::take_back_answer());
    reads_as(Wake);
    reads_as(examples::challenge());
    reads_as(examples::proof());
    reads_as(examples::join());
    reads_as(examples::join_answer());
}

/// As sent before what is removed was compared with what it is taken for.
fn request_without_discards() -> CatalogRequest {
    let mut request = examples::catalog_request();
    request.ops.retain(|op| !matches!(op, Ok(CatalogOp::Discard { .. })));
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Unlink { group, .. } = op {
            *group = false;
        }
    }
    request
}

/// As sent before bytes were appended to those in records.
fn request_without_appends() -> CatalogRequest {
    let mut request = request_without_discards();
    request.ops.retain(|op| !matches!(op, Ok(CatalogOp::Append { .. })));
    request
}

/// Likewise.
fn answer_without_appends() -> CatalogAnswer {
    let mut answer = examples::catalog_answer();
    answer.replies.retain(|reply| !matches!(reply, Ok(CatalogReply::Appended(_))));
    answer
}

/// As sent before names of collections were removed as such.
fn request_without_unlinks() -> CatalogRequest {
    let mut request = request_without_appends();
    request.ops.retain(|op| !matches!(op, Ok(CatalogOp::Unlink { .. })));
    request
}

/// Likewise.
fn answer_without_removals() -> CatalogAnswer {
    let mut answer = answer_without_appends();
    answer.replies.retain(|reply| !matches!(reply, Ok(CatalogReply::Removed(_))));
    answer
}

/// As sent before looks told bytes.
fn request_without_bytes() -> CatalogRequest {
    let mut request = request_without_unlinks();
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Look { tell, .. } = op {
            *tell = 0;
        }
    }
    request
}

/// Likewise.
fn answer_without_bytes() -> CatalogAnswer {
    let mut answer = answer_without_removals();
    for reply in answer.replies.iter_mut().flatten() {
        match reply {
            CatalogReply::Looked(looked) => looked.entries.iter_mut().for_each(|entry| {
                (entry.bytes, entry.writable) = (None, false);
            }),
            CatalogReply::Opened(opened) => opened.told.iter_mut().for_each(|told| told.may_keep = false),
            _ => {}
        }
    }
    answer
}

/// As sent before creates told of what they make.
fn request_without_creates_that_tell() -> CatalogRequest {
    let mut request = request_without_bytes();
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Create { tell, .. } = op {
            *tell = false;
        }
    }
    request
}

/// Likewise.
fn answer_without_groups() -> CatalogAnswer {
    let mut answer = answer_without_bytes();
    for reply in answer.replies.iter_mut().flatten() {
        if let CatalogReply::Opened(opened) = reply
            && let Some(told) = &mut opened.told
        {
            told.group = None;
        }
    }
    answer
}

/// As sent before opens told of what they open.
fn request_without_told() -> CatalogRequest {
    let mut request = request_without_creates_that_tell();
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Open { tell, .. } = op {
            *tell = None;
        }
    }
    request
}

/// Likewise.
fn answer_without_told() -> CatalogAnswer {
    let mut answer = answer_without_groups();
    for reply in answer.replies.iter_mut().flatten() {
        if let CatalogReply::Opened(opened) = reply {
            opened.told = None;
        }
    }
    answer
}

/// As sent before a look could look ahead.
fn request_without_ahead() -> CatalogRequest {
    let mut request = request_without_told();
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Look { ahead, .. } = op {
            *ahead = 0;
        }
    }
    request
}

/// Likewise.
fn answer_without_ahead() -> CatalogAnswer {
    let mut answer = answer_without_told();
    answer.replies.retain(|reply| !matches!(reply, Ok(CatalogReply::Looked(_))));
    answer
}

/// As sent before bytes in records could be cut there.
fn request_without_truncates() -> CatalogRequest {
    let mut request = request_without_ahead();
    request.ops.retain(|op| !matches!(op, Ok(CatalogOp::Truncate { .. })));
    request
}

/// Before facts were told of what is not open, and programs could set when they had read something.
fn request_without_looks() -> CatalogRequest {
    let mut request = request_without_truncates();
    request.ops.retain(|op| !matches!(op, Ok(CatalogOp::Look { .. })));
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Create { attr, .. } | CatalogOp::SetAttr { attr, .. } = op {
            attr.atime_ns = None;
        }
    }
    request
}

/// Likewise.
fn answer_without_looks() -> CatalogAnswer {
    let mut answer = answer_without_ahead();
    for reply in answer.replies.iter_mut().flatten() {
        if let CatalogReply::Stat(stat) = reply {
            (stat.atime_ns, stat.changed_ns) = (0, 0);
        }
    }
    answer
}

/// Before collections had a lifetime, and daemons told of their directories.
fn request_without_lifetimes() -> CatalogRequest {
    let mut request = request_without_looks();
    for op in request.ops.iter_mut().flatten() {
        if let CatalogOp::Create { attr, .. } | CatalogOp::SetAttr { attr, .. } = op {
            attr.lifetime = None;
        }
    }
    request
}

/// Likewise.
fn answer_without_lifetimes() -> CatalogAnswer {
    let mut answer = answer_without_looks();
    for reply in answer.replies.iter_mut().flatten() {
        match reply {
            CatalogReply::Stat(stat) => stat.lifetime = None,
            CatalogReply::Map(map) => map.targets.iter_mut().for_each(|target| target.local.clear()),
            _ => {}
        }
    }
    answer
}

/// As many operations as there were, on collections that had no place but the first.
fn request_at_first(ops: usize) -> CatalogRequest {
    let mut request = request_without_lifetimes();
    request.ops.truncate(ops);
    if let Submission::All { staged, .. } = &mut request.how {
        staged.iter_mut().for_each(|s| s.place = Place::FIRST);
    }
    for op in request.ops.iter_mut().flatten() {
        match op {
            CatalogOp::Create { layout: Some(layout), .. } | CatalogOp::Set { layout: Some(layout), .. } => {
                layout.place = Place::FIRST;
            }
            CatalogOp::WorkspaceCreate { attr, .. } | CatalogOp::WorkspaceSet { attr, .. } => {
                attr.layout.iter_mut().for_each(|layout| layout.place = Place::FIRST);
            }
            _ => {}
        }
    }
    request
}

/// Likewise.
fn answer_at_first() -> CatalogAnswer {
    let mut answer = answer_without_lifetimes();
    answer.replies.retain(|r| !matches!(r, Ok(CatalogReply::Map(_) | CatalogReply::Ticket(_))));
    for reply in answer.replies.iter_mut().flatten() {
        match reply {
            CatalogReply::Opened(opened) => opened.layout.place = Place::FIRST,
            CatalogReply::Workspace(opened) => opened.layout.iter_mut().for_each(|layout| layout.place = Place::FIRST),
            _ => {}
        }
    }
    answer
}

#[test]
fn what_older_releases_of_version_1_sent_is_read_for_ever() {
    let bytes = std::fs::read(named(Verb::Welcome, "")).expect("the bytes of the first release");
    let ringless = Welcome { rings: false, ..examples::welcome() };
    let alike = Welcome { priorities: false, ..ringless.clone() };
    let local = Welcome { proof: Vec::new(), addresses: Vec::new(), target: 0, ..alike.clone() };
    reads(&bytes, Welcome { lease_ns: 0, ..local.clone() });
    // Before there were connections over a network.
    let bytes = std::fs::read(named(Verb::Welcome, "-2")).expect("the bytes of a later one");
    reads(&bytes, local);
    let bytes = std::fs::read(named(Verb::Hello, "")).expect("the bytes of the first release");
    reads(
        &bytes,
        Hello { channel: 0, challenge: Vec::new(), target: 0, of: Uuid::NIL, rings: false, ..examples::hello() },
    );
    // Before there were several targets.
    let bytes = std::fs::read(named(Verb::Welcome, "-3")).expect("the bytes of a later one");
    reads(&bytes, Welcome { target: 0, ..alike.clone() });
    // Before requests could give way to others.
    let bytes = std::fs::read(named(Verb::Welcome, "-4")).expect("the bytes of a later one");
    reads(&bytes, alike);
    let bytes = std::fs::read(named(Verb::Hello, "-2")).expect("the bytes of a later one");
    reads(&bytes, Hello { target: 0, of: Uuid::NIL, rings: false, ..examples::hello() });
    let bytes = std::fs::read(named(Verb::Catalog, "-2")).expect("the bytes of a later one");
    reads(&bytes, request_at_first(36));
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-3")).expect("the bytes of a later one");
    reads(&bytes, answer_at_first());
    // Before there were targets of other daemons.
    let bytes = std::fs::read(named(Verb::Catalog, "-3")).expect("the bytes of a later one");
    let mut request = request_without_lifetimes();
    request.ops.truncate(37);
    reads(&bytes, request);
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-4")).expect("the bytes of a later one");
    let mut answer = answer_without_lifetimes();
    answer.replies.retain(|r| !matches!(r, Ok(CatalogReply::Ticket(_))));
    reads(&bytes, answer);
    let bytes = std::fs::read(named(Verb::Object, "")).expect("the bytes of the first release");
    let mut request = examples::object_request();
    request.tickets.clear();
    request.calls.truncate(18);
    reads(&bytes, request);
    // Before there were rings in shared memory.
    let bytes = std::fs::read(named(Verb::Welcome, "-5")).expect("the bytes of a later one");
    reads(&bytes, ringless);
    let bytes = std::fs::read(named(Verb::Hello, "-3")).expect("the bytes of a later one");
    reads(&bytes, Hello { rings: false, ..examples::hello() });
    // Before what is removed was compared with what it is taken for.
    let bytes = std::fs::read(named(Verb::Catalog, "-13")).expect("the bytes of a later one");
    reads(&bytes, request_without_discards());
    // Before bytes were appended to those in records.
    let bytes = std::fs::read(named(Verb::Catalog, "-12")).expect("the bytes of a later one");
    reads(&bytes, request_without_appends());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-12")).expect("the bytes of a later one");
    reads(&bytes, answer_without_appends());
    // Before names of collections were removed as such.
    let bytes = std::fs::read(named(Verb::Catalog, "-11")).expect("the bytes of a later one");
    reads(&bytes, request_without_unlinks());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-11")).expect("the bytes of a later one");
    reads(&bytes, answer_without_removals());
    // Before looks told bytes.
    let bytes = std::fs::read(named(Verb::Catalog, "-10")).expect("the bytes of a later one");
    reads(&bytes, request_without_bytes());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-10")).expect("the bytes of a later one");
    reads(&bytes, answer_without_bytes());
    // Before creates told of what they make.
    let bytes = std::fs::read(named(Verb::Catalog, "-9")).expect("the bytes of a later one");
    reads(&bytes, request_without_creates_that_tell());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-9")).expect("the bytes of a later one");
    reads(&bytes, answer_without_groups());
    // Before opens told of what they open.
    let bytes = std::fs::read(named(Verb::Catalog, "-8")).expect("the bytes of a later one");
    reads(&bytes, request_without_told());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-8")).expect("the bytes of a later one");
    reads(&bytes, answer_without_told());
    // Before looks looked ahead.
    let bytes = std::fs::read(named(Verb::Catalog, "-7")).expect("the bytes of a later one");
    reads(&bytes, request_without_ahead());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-7")).expect("the bytes of a later one");
    reads(&bytes, answer_without_ahead());
    // Before bytes in records were cut there.
    let bytes = std::fs::read(named(Verb::Catalog, "-6")).expect("the bytes of a later one");
    reads(&bytes, request_without_truncates());
    // Before facts were told of what is not open.
    let bytes = std::fs::read(named(Verb::Catalog, "-5")).expect("the bytes of a later one");
    reads(&bytes, request_without_looks());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-6")).expect("the bytes of a later one");
    reads(&bytes, answer_without_looks());
    // Before collections went by themselves, and programs reached daemons of targets by their directories.
    let bytes = std::fs::read(named(Verb::Catalog, "-4")).expect("the bytes of a later one");
    reads(&bytes, request_without_lifetimes());
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-5")).expect("the bytes of a later one");
    reads(&bytes, answer_without_lifetimes());
    let bytes = std::fs::read(named(Verb::Grant, "-2")).expect("the bytes of a later one");
    reads(&bytes, GrantRequest { tickets: Vec::new(), ..examples::grant_request() });
    let bytes = std::fs::read(named(Verb::Join, "")).expect("the bytes of the first release with it");
    let mut join = examples::join();
    join.targets.iter_mut().for_each(|target| target.local.clear());
    reads(&bytes, join);
    // Before bytes could live in records.
    let bytes = std::fs::read(named(Verb::Catalog, "")).expect("the bytes of the first release");
    reads(&bytes, request_at_first(33));
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "")).expect("the bytes of the first release");
    let mut answer = answer_at_first();
    answer.replies.retain(|r| !matches!(r, Ok(CatalogReply::Bytes(_) | CatalogReply::Moved)));
    for reply in answer.replies.iter_mut().flatten() {
        match reply {
            CatalogReply::Opened(opened) => (opened.inline, opened.size) = (false, None),
            CatalogReply::Workspace(opened) => opened.indexes.clear(),
            _ => {}
        }
    }
    reads(&bytes, answer);
    // Before objects were kept by checksums.
    let bytes = std::fs::read(named(Verb::GrantAnswer, "")).expect("the bytes of the first release");
    let GrantAnswer::Granted(granted) = examples::grant_answer() else { unreachable!("a grant") };
    reads(&bytes, GrantAnswer::Granted(Granted { kept: false, window: None, version: 0, ..granted.clone() }));
    // Before bytes lay in shared memory.
    let bytes = std::fs::read(named(Verb::GrantAnswer, "-2")).expect("the bytes of a later one");
    reads(&bytes, GrantAnswer::Granted(Granted { window: None, version: 0, ..granted.clone() }));
    let bytes = std::fs::read(named(Verb::GrantAnswer, "-3")).expect("the bytes of a later one");
    reads(&bytes, GrantAnswer::Granted(Granted { version: 0, ..granted }));
    let bytes = std::fs::read(named(Verb::Grant, "")).expect("the bytes of the first release");
    reads(&bytes, GrantRequest { memory: false, anew: false, tickets: Vec::new(), ..examples::grant_request() });
    // Before a sealed collection's length was told, and a workspace's indexes.
    let bytes = std::fs::read(named(Verb::CatalogAnswer, "-2")).expect("the bytes of a later one");
    let mut answer = answer_at_first();
    for reply in answer.replies.iter_mut().flatten() {
        match reply {
            CatalogReply::Opened(opened) => opened.size = None,
            CatalogReply::Workspace(opened) => opened.indexes.clear(),
            _ => {}
        }
    }
    reads(&bytes, answer);
    // Before a session came back with its locks.
    let bytes = std::fs::read(named(Verb::Resume, "")).expect("the bytes of the first release");
    reads(&bytes, Resume { locks: Vec::new(), ..examples::resume() });
    let bytes = std::fs::read(named(Verb::ResumeAnswer, "")).expect("the bytes of the first release");
    reads(&bytes, ResumeAnswer { locks: Vec::new(), ..examples::resume_answer() });
}

/// The tags of the variants in a list of choices.
fn tags(choices: impl Iterator<Item = Vec<u8>>) -> Vec<u32> {
    choices
        .map(|bytes| {
            let key = iov_wire::codec::Reader::new(&bytes, "a choice").key();
            key.expect("a key").expect("a variant").0
        })
        .collect()
}

#[test]
fn no_operation_is_without_golden_bytes() {
    let known = |op: &Result<CatalogOp>| op.as_ref().expect("an operation").to_bytes();
    assert_eq!(tags(examples::catalog_request().ops.iter().map(known)), (1..=43).collect::<Vec<_>>());
    let replies = examples::catalog_answer().replies;
    assert_eq!(tags(replies.iter().flatten().map(Wire::to_bytes)), (1..=16).collect::<Vec<_>>());
    let calls = examples::object_request().calls;
    let verbs: Vec<_> = calls.iter().map(|c| &c.op.as_ref().expect("an operation").verb).collect();
    assert_eq!(tags(verbs.iter().map(|v| v.to_bytes())), (1..=19).collect::<Vec<_>>());
    // The numbers of verbs on objects are also those of capabilities, traces and faults.
    assert_eq!(tags(verbs.iter().map(|v| v.to_bytes())), verbs.iter().map(|v| v.kind() as u32).collect::<Vec<_>>());
}
