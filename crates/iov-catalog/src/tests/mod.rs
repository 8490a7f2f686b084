//! The catalog as its clients see it, clause by clause, on the memory engine and the heap target.
#![allow(clippy::disallowed_methods)]

mod access;
mod along;
mod appended;
mod away;
mod batches;
mod check;
mod crashes;
mod fragile;
mod gone;
mod groups;
mod holds;
mod hung;
mod inline;
mod locks;
mod metadata;
mod names;
mod opens;
mod parted;
mod random;
mod records;
mod resume;
pub(crate) mod rig;
mod room;
mod sealing;
mod seals;
mod search;
mod sizes;
mod submissions;
mod targets;
mod temporary;
mod through;
mod times;
mod workspaces;
