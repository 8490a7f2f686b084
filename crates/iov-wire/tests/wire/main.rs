//! The wire seen from outside: what is written reads back, what is damaged is noticed, what was once written stays
//! readable, and the document says what the code does.

mod document;
mod examples;
mod golden;
mod robustness;
mod round_trip;
mod strategies;
