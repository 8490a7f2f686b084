//! `iov start-program`: becomes a program that only programs of `iov run` can find. `iov run`, which is none of them, starts it; people have no use for it.

use std::{
    ffi::OsString,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    process::Command,
};

use ioverbs::Error;

use crate::{ctx::Ctx, failure::Done, output::printable};

/// Become a program of a workspace
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program and what it is told
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(_: &mut Ctx, args: &Args) -> Done {
    let e = Command::new(&args.program[0]).args(&args.program[1..]).exec();
    Err(Error::from(e).context(format!("running {}", printable(args.program[0].as_bytes()))).into())
}
