//! Files as a target: the suite, the model, crashes, clients that write themselves, disks that are full.
#![allow(clippy::disallowed_methods)] // tests may spawn threads and processes, sleep and look at clocks

mod conformance;
mod crash;
mod grants;
mod kit;
mod late;
mod lent;
mod look;
mod model;
mod space;
mod starts;
mod sums;
mod survive;
mod ways;
