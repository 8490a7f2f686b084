//! The command line as a whole.

use clap::{Parser, Subcommand};

use ioverbs::Error;

use crate::{
    commands,
    ctx::Ctx,
    failure::{Done, Next},
    interrupt::Interrupt,
    options::Global,
};

/// Store, describe, find and read back data, with the promises that you choose
///
/// Objects are addressed as WS, WS/NAME or WS/GROUP/NAME, also as WS/uuid:… and iov://HOST/WS/NAME. Names may be any
/// bytes but '/' and NUL.
#[derive(Parser, Debug)]
#[command(name = "iov", version, disable_help_subcommand = true, max_term_width = 100, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
To begin:
  iov ws create demo
  iov put data.bin demo -m temperature=310
  iov find demo 'temperature > 300'
  iov get demo/data.bin copy.bin

iov help EBUSY explains an error, iov help C3 a clause, iov help controls what can be promised.

Exit codes follow sysexits: 0 done, 64 wrong usage, 65 damaged data, 66 not there, 69 cannot be had,
70 a defect, 73 cannot be made, 75 try again later, 76 versions differ, 77 not allowed;
130 interrupted.";

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Ws(commands::ws::Args),
    Put(commands::put::Args),
    Get(commands::get::Args),
    Ls(commands::ls::Args),
    Stat(commands::stat::Args),
    Rm(commands::rm::Args),
    Cp(commands::cp::Args),
    Mv(commands::mv::Args),
    Cat(commands::cat::Args),
    Tag(commands::tag::Args),
    Keep(commands::keep::Args),
    Find(commands::find::Args),
    Mount(commands::mount::Args),
    Umount(commands::umount::Args),
    Run(commands::run::Args),
    Segment(commands::segment::Args),
    Explain(commands::explain::Args),
    Why(commands::why::Args),
    Stats(commands::stats::Args),
    Trace(commands::trace::Args),
    Up(commands::up::Args),
    Status(commands::status::Args),
    Df(commands::df::Args),
    Targets(commands::targets::Args),
    Nodes(commands::nodes::Args),
    Net(commands::net::Args),
    Pattern(commands::pattern::Args),
    Export(commands::export::Args),
    Import(commands::import::Args),
    Down(commands::down::Args),
    Help(commands::help::Args),
    Bench(commands::bench::Args),
    Completions(commands::completions::Args),
    #[command(hide = true)]
    HoldLock(commands::hold_lock::Args),
    #[command(hide = true)]
    LookAt(commands::look_at::Args),
    #[command(hide = true)]
    StartProgram(commands::start_program::Args),
    #[command(hide = true)]
    Man(commands::man::Args),
}

impl Command {
    /// Whether it only reads, so that it can do without a daemon.
    fn reads(&self) -> bool {
        match self {
            Command::Ws(args) => args.reads(),
            Command::Ls(_) | Command::Stat(_) | Command::Find(_) | Command::Get(_) | Command::Cat(_) => true,
            Command::Df(_) | Command::Export(_) => true,
            Command::Help(_) | Command::Completions(_) | Command::Man(_) => true,
            _ => false,
        }
    }

    /// What may stop it. What becomes another program leaves all signals as they are, which that one inherits; what has nothing to take back does so too.
    pub(crate) fn interrupt(&self) -> Interrupt {
        match self {
            Command::Run(_) | Command::StartProgram(_) | Command::LookAt(_) => Interrupt::default(),
            _ => Interrupt::on_signals(),
        }
    }

    /// Does it.
    pub(crate) fn run(&self, ctx: &mut Ctx) -> Done {
        if ctx.global.offline.is_some() && !self.reads() {
            return Err(Error::invalid(
                "--offline only reads a store: it goes with ls, stat, find, get, cat, df, export, ws list and ws show",
            ))
            .next(|| "leave --offline out; -S file:DIR names the store, and its daemon does the rest".into());
        }
        match self {
            Command::Ws(args) => commands::ws::run(ctx, args),
            Command::Put(args) => commands::put::run(ctx, args),
            Command::Get(args) => commands::get::run(ctx, args),
            Command::Ls(args) => commands::ls::run(ctx, args),
            Command::Stat(args) => commands::stat::run(ctx, args),
            Command::Rm(args) => commands::rm::run(ctx, args),
            Command::Cp(args) => commands::cp::run(ctx, args),
            Command::Mv(args) => commands::mv::run(ctx, args),
            Command::Cat(args) => commands::cat::run(ctx, args),
            Command::Tag(args) => commands::tag::run(ctx, args),
            Command::Keep(args) => commands::keep::run(ctx, args),
            Command::Find(args) => commands::find::run(ctx, args),
            Command::Mount(args) => commands::mount::run(ctx, args),
            Command::Umount(args) => commands::umount::run(ctx, args),
            Command::Run(args) => commands::run::run(ctx, args),
            Command::Segment(args) => commands::segment::run(ctx, args),
            Command::Explain(args) => commands::explain::run(ctx, args),
            Command::Why(args) => commands::why::run(ctx, args),
            Command::Stats(args) => commands::stats::run(ctx, args),
            Command::Trace(args) => commands::trace::run(ctx, args),
            Command::Up(args) => commands::up::run(ctx, args),
            Command::Status(args) => commands::status::run(ctx, args),
            Command::Df(args) => commands::df::run(ctx, args),
            Command::Targets(args) => commands::targets::run(ctx, args),
            Command::Nodes(args) => commands::nodes::run(ctx, args),
            Command::Net(args) => commands::net::run(ctx, args),
            Command::Pattern(args) => commands::pattern::run(ctx, args),
            Command::Export(args) => commands::export::run(ctx, args),
            Command::Import(args) => commands::import::run(ctx, args),
            Command::Down(args) => commands::down::run(ctx, args),
            Command::Help(args) => commands::help::run(ctx, args),
            Command::Bench(args) => commands::bench::run(ctx, args),
            Command::Completions(args) => commands::completions::run(ctx, args),
            Command::HoldLock(args) => commands::hold_lock::run(ctx, args),
            Command::LookAt(args) => commands::look_at::run(args),
            Command::StartProgram(args) => commands::start_program::run(ctx, args),
            Command::Man(args) => commands::man::run(ctx, args),
        }
    }
}
