//! Operations on objects whose bytes go over the socket.

use std::sync::{Arc, atomic::Ordering};

use iov_net::frames::Frame;
use iov_store::{Bytes, OpCx, run_all_in};
use iov_types::{Clause, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Result, Uuid};
use iov_wire::{
    frame::{PAYLOAD_BYTES, checksum},
    messages::{ObjectAnswer, ObjectCall, ObjectCompletion, ObjectRequest},
};

use crate::{
    Server,
    buffers::Buffer,
    connection::{Client, Connection},
    served::Served,
};

/// Which verbs a client may send: the catalog's own are not among them, since it checks what they need (A1).
fn for_clients(verb: &ObjectVerb) -> bool {
    matches!(
        verb,
        ObjectVerb::Write { .. }
            | ObjectVerb::Read { .. }
            | ObjectVerb::Append
            | ObjectVerb::Truncate { .. }
            | ObjectVerb::Punch(_)
            | ObjectVerb::Allocate { .. }
            | ObjectVerb::Copy { .. }
            | ObjectVerb::Sync
            | ObjectVerb::Discard { .. }
            | ObjectVerb::Stat
            | ObjectVerb::Extents { .. }
    )
}

/// What an operation only looks at, as everybody sees it.
fn looks_at(op: &ObjectOp) -> Option<Uuid> {
    let looks = matches!(op.verb, ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. });
    (looks && op.demand.stage.is_none()).then_some(op.object.collection)
}

/// Fails for what would change bytes that are gone: in place of their file there must be no new one.
pub(crate) fn check_there(
    server: &Server,
    served: &Served,
    cx: &OpCx,
    object: ObjectId,
    stage: Option<Uuid>,
) -> Result<()> {
    if served.grants.has_object(cx, object, stage)? {
        Ok(())
    } else {
        server.catalog.check_there(cx, object.collection)
    }
}

fn admit<'a>(call: ObjectCall, payload: &mut &'a [u8], room: &mut usize) -> Result<(ObjectOp, Bytes<'a>)> {
    let op = call.op?;
    let len = call.len as usize;
    if !for_clients(&op.verb) {
        return Err(Error::denied(format!("a client may not send {:?} itself", op.verb.kind())).with_clause(Clause::A1));
    }
    let bytes = match op.verb {
        ObjectVerb::Write { .. } | ObjectVerb::Append => {
            if len > payload.len() {
                return Err(Error::corrupt("a request announces more bytes than it brings"));
            }
            let (bytes, rest) = payload.split_at(len);
            *payload = rest;
            if call.checksum.is_some_and(|sum| sum != checksum(bytes)) {
                return Err(Error::corrupt("bytes were damaged on their way").with_clause(Clause::I1));
            }
            Bytes::From(bytes)
        }
        ObjectVerb::Read { .. } => {
            if len > *room {
                return Err(Error::too_big("reads of one request are larger than one answer: split it"));
            }
            *room -= len;
            Bytes::Into(len)
        }
        _ => Bytes::None,
    };
    Ok((op, bytes))
}

/// Bytes that live in their record move to the target first.
fn at_target<'a>(
    server: &Server,
    served: &Served,
    cx: &OpCx,
    mut op: (ObjectOp, Bytes<'a>),
) -> Result<(ObjectOp, Bytes<'a>)> {
    server.catalog.check_object(op.0.object, served.number)?;
    match op.0.verb {
        // Of these there is nothing to be done for what no target has.
        ObjectVerb::Sync | ObjectVerb::Discard { .. } => {}
        ObjectVerb::Copy { source, .. } => {
            server.catalog.check_object(source, served.number)?;
            server.catalog.at_target(cx, source.collection)?;
            server.catalog.at_target(cx, op.0.object.collection)?;
        }
        _ => server.catalog.at_target(cx, op.0.object.collection)?,
    }
    if op.0.verb.changes_bytes() {
        check_there(server, served, cx, op.0.object, op.0.demand.stage)?;
        op.0.demand.domain = server.catalog.domain(op.0.object.collection);
    }
    Ok(op)
}

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: ObjectRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let served = server.targets.at(client.target);
    let mut payload = &frame.payload[..];
    let mut room = PAYLOAD_BYTES;
    let mut places = Vec::new();
    let mut ops = Vec::new();
    let mut completions = Vec::new();
    let done = |index, result: Result<Evidence>, bytes: &[u8]| {
        let checksum = (!bytes.is_empty()).then(|| checksum(bytes));
        ObjectCompletion { index, result, len: bytes.len() as u64, checksum }
    };
    for (index, call) in request.calls.into_iter().enumerate() {
        match admit(call, &mut payload, &mut room).and_then(|op| at_target(server, served, &cx, op)) {
            Ok(op) => {
                if let Some(stage) = op.0.demand.stage {
                    served.stages.enter(client.owner, stage);
                }
                places.push(index as u32);
                ops.push(op);
            }
            Err(e) => completions.push(done(index as u32, Err(e), &[])),
        }
    }
    let discarded: Vec<Uuid> = ops
        .iter()
        .filter_map(|(op, _)| match op.verb {
            ObjectVerb::Discard { stage } => Some(stage),
            _ => None,
        })
        .collect();
    let mut payload = Vec::new();
    let rooms: Vec<usize> = ops.iter().map(|(_, bytes)| if let Bytes::Into(len) = bytes { *len } else { 0 }).collect();
    let looks: Vec<Option<Uuid>> = ops.iter().map(|(op, _)| looks_at(op)).collect();
    let (results, memory) = run_all_in(&*served.target, &cx, ops, |len| server.buffers.take(len));
    let results = results.into_iter().zip(memory).zip(rooms);
    for ((index, looks), ((result, memory), room)) in places.into_iter().zip(looks).zip(results) {
        // Behind what was read lies what another request has left there.
        let bytes = server.buffers.filled(memory, result.as_ref().map_or(0, |e| e.bytes as usize).min(room));
        let result = result.and_then(|found| match looks {
            Some(collection) if found.size == 0 && found.mtime_ns == 0 => {
                server.catalog.check_there(&cx, collection).map(|()| found)
            }
            _ => Ok(found),
        });
        completions.push(done(index, result, &bytes));
        payload.push(bytes);
    }
    discarded.into_iter().for_each(|stage| served.stages.leave(stage, &*served.grants));
    let moved = frame.payload.len() + payload.iter().map(|piece: &Buffer| piece.len()).sum::<usize>();
    server.object_bytes.fetch_add(moved as u64, Ordering::Relaxed);
    let answer = ObjectAnswer { failed: None, completions };
    connection.answer(client.version, frame.header.request, &answer, payload, Vec::new());
    Ok(())
}
