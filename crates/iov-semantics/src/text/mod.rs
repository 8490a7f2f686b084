//! Controls as text: `profile=checkpoint,consistency=session,persistence=durable@close,request_size=47008`.
//!
//! `key=value`, separated by commas, spaces around them allowed. A value may take its parameter in parentheses; each
//! parameter also has a key of its own, for texts that set it alone.
//!
//! | key | values |
//! | --- | --- |
//! | `profile` | a name of [`crate::profile::NAMES`]: sets what the rest of the text leaves unset |
//! | `consistency` | `sequential`, `commit`, `session`, `eventual`, `eventual(TIME)` |
//! | `eventual` | TIME |
//! | `concurrency` | `shared`, `exclusive` |
//! | `mutability` | `overwrite`, `append`, `immutable` |
//! | `atomicity` | `none`, `unit`, `unit(SIZE)`, `publication` |
//! | `unit` | SIZE |
//! | `persistence` | `volatile`, `process`, `durable`, `replicated`, each also with `@POINT`; `@POINT` alone |
//! | `point` | `close`, `request`, `batch`, `explicit` |
//! | `temporality` | `multiple`, `once`, `bursty`, `bursty(TIME)` |
//! | `drain` | TIME |
//! | `spatiality` | `any`, `contiguous`, `strided`, `strided(STRIDE,BLOCK)`, `random` |
//! | `stride`, `block` | SIZE |
//! | `request_size`, `collection_size` | SIZE (smallest and largest), `SIZE..SIZE`, `SIZE..`, `..SIZE` |
//! | `error` (or `on_error`) | `continue`, `stop`, `rollback` |
//!
//! SIZE is `47008`, `4KiB`, `1MB`; TIME is `5s`, `250ms`: see [`crate::quantity`].

mod format;
mod lex;
mod lifetime;
mod parse;

pub use format::format;
pub use lifetime::{format_lifetime, parse_lifetime};
pub use parse::parse;

#[cfg(test)]
mod tests;
