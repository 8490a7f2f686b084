//! A process of a litmus test: obeys the lines of its standard input, and answers each on standard output.
#![forbid(unsafe_code)]

fn main() {
    iov_litmus::worker::run();
}
