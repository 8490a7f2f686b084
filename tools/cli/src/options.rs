//! Arguments that several commands share.

use clap::{Args, ValueEnum};
use ioverbs::{Controls, Metadata, Result};

/// What holds for every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The store: file:DIR, iov://HOST[:PORT][,HOST…] over a network, or mem: for this process alone. Default: $IOVERBS_URL, else the store in your data directory
    #[arg(long, short = 'S', global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Read the store in this directory without its daemon, changing nothing in it: for ls, stat, find, get, cat, df, export
    /// and ws list and show
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "store")]
    pub(crate) offline: Option<std::path::PathBuf>,

    /// Write JSON, errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// No progress bars, no summaries
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,

    /// Say on standard error what the command has cost, in counters
    #[arg(long, global = true)]
    pub(crate) stats: bool,

    /// How long one request may take, as in 5s or 10min
    #[arg(long, global = true, value_name = "TIME", default_value = "60s")]
    pub(crate) timeout: String,

    /// Give way to what others wait for: for copies and exports beside running jobs
    #[arg(long, global = true)]
    pub(crate) background: bool,
}

/// `-c control=value …`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ControlArgs {
    /// What is promised, as in consistency=session or profile=checkpoint; see `iov help controls`
    #[arg(short = 'c', long = "controls", value_name = "CONTROL=VALUE")]
    pub(crate) controls: Vec<String>,
}

impl ControlArgs {
    /// What they ask for.
    pub(crate) fn read(&self) -> Result<Controls> {
        let mut controls = Controls::default();
        self.read_over(&mut controls)?;
        Ok(controls)
    }

    /// Sets what they name over what was set before.
    pub(crate) fn read_over(&self, controls: &mut Controls) -> Result<()> {
        self.controls.iter().try_for_each(|text| ioverbs::text::parse(controls, text))
    }
}

/// `-m key=value …`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MetadataArgs {
    /// Metadata; key:TYPE=value forces a type: str, i64, f64, bool, bytes or time
    #[arg(short = 'm', long = "metadata", value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,
}

impl MetadataArgs {
    /// The pairs.
    pub(crate) fn read(&self) -> Result<Metadata> {
        crate::pairs::read(&self.metadata)
    }
}

/// What to do where a name is taken.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum IfExists {
    /// Say so, and leave it as it is
    #[default]
    Fail,
    /// Put the new one in its place, in one step
    Replace,
    /// Leave it as it is, and go on
    Skip,
}
