//! Where which bytes of a collection lie: pure arithmetic, without targets, clocks or I/O.
//!
//! [`Stripes`] spreads bytes over objects in turns of one chunk each. Objects are dense: what is one chunk behind the other
//! in an object is a whole turn apart in the collection.
#![forbid(unsafe_code)]

mod stripes;

pub use stripes::{Piece, Stripes};

#[cfg(test)]
mod tests;
