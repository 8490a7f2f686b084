//! `iov completions`: what a shell needs to complete commands and options.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use ioverbs::Error;

use crate::{
    cli::Cli,
    ctx::Ctx,
    failure::{Done, local},
};

/// Write the completions for a shell
///
/// As in: iov completions bash > ~/.local/share/bash-completion/completions/iov
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Which shell
    #[arg(required_unless_present = "dir")]
    shell: Option<Shell>,

    /// Write those of bash, zsh and fish into this folder
    #[arg(long, conflicts_with = "shell", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let mut command = Cli::command();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(|e| local("the folder", dir, e))?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command, "iov", dir).map_err(|e| local("the folder", dir, e))?;
        }
        return Ok(());
    }
    let shell = args.shell.ok_or_else(|| Error::invalid("which shell? bash, zsh or fish"))?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "iov", &mut text);
    ctx.out.bytes(&text)
}
