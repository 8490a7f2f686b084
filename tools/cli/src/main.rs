//! `iov`: the command line of IOVerbs. One subcommand, one file in `commands/`.
#![forbid(unsafe_code)]

/// A mount serves requests that allocate from many threads, as the daemon does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod address;
mod advice;
mod app;
mod archive;
mod cli;
mod commands;
mod ctx;
mod facts;
mod failure;
mod habits;
mod interrupt;
mod locate;
mod modes;
mod options;
mod output;
mod pairs;
mod progress;
mod quantity;
mod transfer;

#[cfg(test)]
mod tests;

fn main() -> std::process::ExitCode {
    app::main()
}
