//! A reference model.
#![forbid(unsafe_code)]
