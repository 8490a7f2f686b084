//! Operations on objects whose bytes go over the socket.

use std::sync::{Arc, atomic::Ordering};

use iov_net::frames::Frame;
use iov_store::{Bytes, run_all_in};
use iov_types::{Clause, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Outcome, Result};
use iov_wire::{
    frame::{PAYLOAD_BYTES, checksum},
    messages::{ObjectAnswer, ObjectCall, ObjectCompletion, ObjectRequest},
};

use crate::{Server, buffers::Buffer, client::Client, connection::Connection, leave::Leave};

/// What an operation only looks at, as everybody sees it.
fn looks_at(op: &ObjectOp) -> Option<ObjectId> {
    let looks = matches!(op.verb, ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. });
    (looks && op.demand.stage.is_none()).then_some(op.object)
}

fn unpack<'a>(
    leave: &Leave<'_>,
    call: ObjectCall,
    payload: &mut &'a [u8],
    room: &mut usize,
) -> Result<(ObjectOp, Bytes<'a>)> {
    let op = call.op?;
    let len = call.len as usize;
    leave.check_verb(&op.verb)?;
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

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Arc<Client>, frame: &Frame) -> Result<()> {
    let request: ObjectRequest = frame.header.body(&frame.body)?;
    let cx = client.cx(&request.context, &frame.header);
    let served = server.targets.at(client.target);
    let leave = server.leave(client, &request.tickets)?;
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
        let admitted = unpack(&leave, call, &mut payload, &mut room).and_then(|(mut op, bytes)| {
            leave.admit(client, served, &cx, &mut op)?;
            Ok((op, bytes))
        });
        match admitted {
            Ok(op) => {
                // The catalog only looks at what a session has staged.
                if let Some(stage) = op.0.demand.stage.filter(|_| !leave.is_catalog()) {
                    served.stages.enter(client.owner, stage);
                }
                places.push(index as u32);
                ops.push(op);
            }
            Err(e) => completions.push(done(index as u32, Err(e), &[])),
        }
    }
    let decides = |verb: &ObjectVerb| {
        matches!(verb, ObjectVerb::Publish { .. } | ObjectVerb::Discard { .. } | ObjectVerb::Thaw { .. })
    };
    let decided: Vec<(usize, ObjectOp)> =
        ops.iter().enumerate().filter(|(_, (op, _))| decides(&op.verb)).map(|(i, (op, _))| (i, op.clone())).collect();
    let reads = |verb: &ObjectVerb| {
        matches!(
            verb,
            ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. } | ObjectVerb::List { .. }
        )
    };
    let only_reads = ops.iter().all(|(op, _)| reads(&op.verb));
    let untold = if only_reads { Outcome::NotApplied } else { Outcome::Unknown };
    let mut payload = Vec::new();
    let rooms: Vec<usize> = ops.iter().map(|(_, bytes)| if let Bytes::Into(len) = bytes { *len } else { 0 }).collect();
    let looks: Vec<Option<ObjectId>> = ops.iter().map(|(op, _)| looks_at(op)).collect();
    let (results, memory) = run_all_in(&*served.target, &cx, ops, |len| server.buffers.take(len));
    for (i, op) in decided {
        match op.verb {
            ObjectVerb::Publish { stage } | ObjectVerb::Discard { stage } => {
                if matches!(op.verb, ObjectVerb::Publish { .. }) && results[i].is_ok() {
                    server.facts.published(stage);
                }
                served.stages.leave(stage, &*served.grants);
            }
            ObjectVerb::Thaw { stage } if results[i].is_ok() => {
                served.stages.thawed(stage, op.object, &*served.grants);
            }
            _ => {}
        }
    }
    let results = results.into_iter().zip(memory).zip(rooms);
    for ((index, looks), ((result, memory), room)) in places.into_iter().zip(looks).zip(results) {
        // Behind what was read lies what another request has left there.
        let bytes = server.buffers.filled(memory, result.as_ref().map_or(0, |e| e.bytes as usize).min(room));
        let result = result.and_then(|found| match looks {
            Some(object) if found.size == 0 && found.mtime_ns == 0 => {
                leave.check_there(served, &cx, object).map(|()| found)
            }
            _ => Ok(found),
        });
        completions.push(done(index, result, &bytes));
        payload.push(bytes);
    }
    let moved = frame.payload.len() + payload.iter().map(|piece: &Buffer| piece.len()).sum::<usize>();
    server.object_bytes.fetch_add(moved as u64, Ordering::Relaxed);
    served.bytes.fetch_add(moved as u64, Ordering::Relaxed);
    served.operations.fetch_add(completions.len() as u64, Ordering::Relaxed);
    let answer = ObjectAnswer { failed: None, completions };
    connection.answer_of(client.version, frame.header.request, &answer, payload, Vec::new(), untold);
    Ok(())
}
