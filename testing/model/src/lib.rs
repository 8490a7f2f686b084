//! A reference model of objects on a target, small enough to be believed, and a way to drive a target and the model side
//! by side through random operations.
//!
//! What the model leaves to the conformance suite: threads, waiting, the bound of a stage (B4), ages of batches, space.
#![forbid(unsafe_code)]

mod content;
mod drive;
mod object;
mod steps;

pub use drive::{compare, compare_dense};
pub use object::{Model, Reply};
pub use steps::{Step, steps};
