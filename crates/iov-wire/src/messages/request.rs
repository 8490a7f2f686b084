//! A submission to the catalog and its answer.

use iov_types::catalog::{CatalogOp, CatalogReply, Submission};
use iov_types::{Error, Result, Uuid};

use crate::message;

/// What a request says of its caller. Who it is, the server knows from the transport and from `Hello`; the time left
/// stands in the frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The holder the session says it acts for: itself, or one whose token it has joined, which the server checks (X1).
    pub holder: Uuid,
    /// The batch; nil = none.
    pub batch: Uuid,
}

message! { strict Context { 1 => holder: uuid, 2 => batch: uuid } }

/// Operations on facts, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct CatalogRequest {
    /// For whom.
    pub context: Context,
    /// How they depend on each other.
    pub how: Submission,
    /// The operations; an error where only a newer release understands one, which then fails by itself.
    pub ops: Vec<Result<CatalogOp>>,
}

message! { strict CatalogRequest { 1 => context: message, 2 => how: required message, 3 => ops: repeated tolerant } }

/// Replies in the order of the operations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CatalogAnswer {
    /// Why the submission failed as a whole.
    pub failed: Option<Error>,
    /// Else one for each operation, up to the one that failed where a failure ends the submission.
    pub replies: Vec<Result<CatalogReply>>,
}

message! { CatalogAnswer { 1 => failed: optional message, 2 => replies: repeated message } }

impl From<Result<Vec<Result<CatalogReply>>>> for CatalogAnswer {
    fn from(answer: Result<Vec<Result<CatalogReply>>>) -> CatalogAnswer {
        match answer {
            Ok(replies) => CatalogAnswer { failed: None, replies },
            Err(error) => CatalogAnswer { failed: Some(error), replies: Vec::new() },
        }
    }
}

impl From<CatalogAnswer> for Result<Vec<Result<CatalogReply>>> {
    fn from(answer: CatalogAnswer) -> Self {
        match answer.failed {
            None => Ok(answer.replies),
            Some(error) => Err(error),
        }
    }
}
