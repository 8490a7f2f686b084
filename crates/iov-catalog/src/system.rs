//! System keys (O4): facts as values, for reading and for search.

use iov_semantics::quantity::format_size;
use iov_types::{Controls, EntryKind, Layout, Name, Redundancy, State, Uuid, Value, posix};

use crate::{
    exec::facts::Live,
    predicate::SystemKey,
    promise,
    record::{Record, Usage, WorkspaceRecord},
};

/// A name as a value: text, or bytes where it is none.
pub(crate) fn name_value(name: &Name) -> Value {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(text) => Value::Str(text.to_owned()),
        Err(_) => Value::Bytes(name.as_bytes().to_vec()),
    }
}

fn size(n: u64) -> Value {
    Value::I64(i64::try_from(n).unwrap_or(i64::MAX))
}

/// The word for a state.
pub(crate) fn state_text(state: State) -> &'static str {
    match state {
        State::Staging => "staging",
        State::Open => "open",
        State::Sealed => "sealed",
    }
}

/// A layout as text; what is left to the policy is left out.
pub(crate) fn layout_text(layout: &Layout) -> String {
    let mut parts = Vec::new();
    if layout.targets != 0 {
        parts.push(format!("targets={}", layout.targets));
    }
    if layout.chunk_size != 0 {
        parts.push(format!("chunk_size={}", format_size(layout.chunk_size)));
    }
    match layout.redundancy {
        None => {}
        Some(Redundancy::None) => parts.push("redundancy=none".into()),
        Some(Redundancy::Mirror) => parts.push(format!("redundancy=mirror({})", layout.k)),
        Some(Redundancy::Erasure) => parts.push(format!("redundancy=erasure({}+{})", layout.k, layout.m)),
    }
    parts.extend(layout.backend.iter().map(|b| format!("backend={b}")));
    parts.extend(layout.policy.iter().map(|p| format!("policy={p}")));
    if !layout.place.is_first() {
        parts.push(format!("pattern={}", layout.place.pattern()));
    }
    parts.push(format!("revision={}", layout.revision));
    parts.join(",")
}

/// A fact about a collection or group. `None`: it has none, such as a checksum that nobody made.
pub(crate) fn of_record(uuid: Uuid, record: &Record, live: &Live, key: SystemKey) -> Option<Value> {
    let is_collection = record.kind == EntryKind::Collection;
    Some(match key {
        SystemKey::Name => name_value(&record.names.first()?.name),
        SystemKey::Group => Value::Str(record.names.first()?.parent.to_string()),
        SystemKey::Uuid => Value::Str(uuid.to_string()),
        SystemKey::Size if is_collection => size(live.size),
        SystemKey::State if is_collection => Value::Str(state_text(record.state).into()),
        SystemKey::Size | SystemKey::State | SystemKey::Checksum => return None,
        SystemKey::Ctime => Value::Time(record.ctime_ns),
        SystemKey::Mtime => Value::Time(live.mtime_ns),
        SystemKey::Owner => Value::I64(i64::from(record.uid)),
        SystemKey::Mode => Value::I64(i64::from(posix::unmarked(record.mode))),
        SystemKey::Controls => Value::Str(promise::text(&Controls::from(&record.effective))),
        SystemKey::Layout => Value::Str(layout_text(&record.layout)),
        SystemKey::Kind => Value::Str(if is_collection { "collection" } else { "group" }.into()),
    })
}

/// A fact about a workspace. `kind` is what it is looked at as: a workspace, or its root group.
pub(crate) fn of_workspace(
    uuid: Uuid,
    record: &WorkspaceRecord,
    usage: Usage,
    kind: EntryKind,
    key: SystemKey,
) -> Option<Value> {
    Some(match key {
        SystemKey::Name => name_value(&record.name),
        SystemKey::Uuid => Value::Str(uuid.to_string()),
        SystemKey::Size => size(usage.bytes),
        SystemKey::Ctime => Value::Time(record.ctime_ns),
        SystemKey::Mtime => Value::Time(record.mtime_ns),
        SystemKey::Owner => Value::I64(i64::from(record.owner)),
        SystemKey::Mode => Value::I64(i64::from(posix::unmarked(record.mode))),
        SystemKey::Controls => Value::Str(promise::text(&record.controls)),
        SystemKey::Layout => Value::Str(layout_text(record.layout.as_ref()?)),
        SystemKey::Kind if kind == EntryKind::Group => Value::Str("group".into()),
        SystemKey::Kind => Value::Str("workspace".into()),
        SystemKey::State | SystemKey::Checksum | SystemKey::Group => return None,
    })
}
