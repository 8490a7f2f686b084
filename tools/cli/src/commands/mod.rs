//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod down;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod help;
pub(crate) mod import;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mv;
pub(crate) mod put;
pub(crate) mod rm;
pub(crate) mod segment;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod tag;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod why;
pub(crate) mod ws;
