//! A session that its server does not know any more comes back (X1, O10).

use iov_types::catalog::{CatalogReply, Presented};
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

/// What a session had when its server ended. Sent before anything else over a new connection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Resume {
    /// For whom.
    pub context: Context,
    /// What it has open.
    pub opens: Vec<Presented>,
    /// Stages that hold changes which the server has acknowledged.
    pub stages: Vec<Uuid>,
}

message! { strict Resume { 1 => context: message, 2 => opens: repeated message, 3 => stages: repeated uuid } }

/// What has become of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ResumeAnswer {
    /// One for each open: `Done`, or why it cannot be used any more.
    pub opens: Vec<Result<CatalogReply>>,
    /// Stages that are gone, with what was in them.
    pub lost: Vec<Uuid>,
}

message! { ResumeAnswer { 1 => opens: repeated message, 2 => lost: repeated uuid } }
