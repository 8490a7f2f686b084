//! A session that its server does not know any more comes back (X1, O10).

use iov_types::catalog::{CatalogReply, Presented, PresentedLock};
use iov_types::{Result, Uuid};

use super::Context;
use crate::message;

message! {
    strict Presented {
        1 => ws: uuid,
        2 => uuid: uuid,
        3 => kind: required number,
        4 => handles: uint,
        5 => writers: uint,
        6 => epoch: uint,
    }
}

message! {
    strict PresentedLock {
        1 => ws: uuid,
        2 => uuid: uuid,
        3 => lock: required message,
    }
}

/// What a session had when its server ended. Sent before anything else over a new connection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resume {
    /// For whom.
    pub context: Context,
    /// What it has open.
    pub opens: Vec<Presented>,
    /// Stages that hold changes which the server has acknowledged.
    pub stages: Vec<Uuid>,
    /// Locks that the server has confirmed; a server that is older than this field refuses the message.
    pub locks: Vec<PresentedLock>,
}

message! {
    strict Resume {
        1 => context: message,
        2 => opens: repeated message,
        3 => stages: repeated uuid,
        4 => locks: repeated message,
    }
}

/// What has become of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ResumeAnswer {
    /// One for each open: `Done`, or why it cannot be used any more.
    pub opens: Vec<Result<CatalogReply>>,
    /// Stages that are gone, with what was in them.
    pub lost: Vec<Uuid>,
    /// One for each lock: `Done`, or why it is not held any more.
    pub locks: Vec<Result<CatalogReply>>,
}

message! { ResumeAnswer { 1 => opens: repeated message, 2 => lost: repeated uuid, 3 => locks: repeated message } }
