//! `iov man`: the manual page, for `make build`.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::{
    cli::Cli,
    ctx::Ctx,
    failure::{Done, local},
};

/// Write the manual page iov(1), and with --dir also one for each subcommand
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write iov.1, iov-put.1 and so on into this folder
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(|e| local("the folder", dir, e))?;
        clap_mangen::generate_to(command, dir).map_err(|e| local("the folder", dir, e))?;
        return Ok(());
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(ioverbs::Error::from)?;
    ctx.out.bytes(&page)
}
