//! `iov ws`: workspaces.

mod change;
mod remove;
mod show;

use clap::{Args as ClapArgs, Subcommand};
use ioverbs::{Clause, Error, Result, WorkspaceAttr};

use crate::{
    address::Address,
    commands::ls,
    ctx::Ctx,
    failure::Done,
    options::{ControlArgs, MetadataArgs},
    quantity,
};

pub(crate) use show::{facts_of, show_one, usage};

/// Create, list, show, change and remove workspaces
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

impl Args {
    /// Whether nothing is changed.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.what, What::List { .. } | What::Show { .. })
    }
}

/// What to do with workspaces.
#[derive(Subcommand, Debug)]
enum What {
    /// Create a workspace
    Create {
        /// Its name
        #[arg(value_parser = Address::parser())]
        name: Address,
        #[command(flatten)]
        properties: Properties,
        /// Do not mind if it is there; then it stays as it is
        #[arg(long)]
        exist_ok: bool,
    },
    /// List the workspaces that you may see
    List {
        /// Kind, size, time of change, name
        #[arg(short, long)]
        long: bool,
        /// Sizes in bytes
        #[arg(long)]
        bytes: bool,
    },
    /// Show use, quotas, expiry, default controls and metadata
    Show {
        /// Which ones
        #[arg(required = true, value_parser = Address::parser())]
        names: Vec<Address>,
        /// Sizes in bytes
        #[arg(long)]
        bytes: bool,
    },
    /// Change properties; what is not named stays
    Set {
        /// Which one
        #[arg(value_parser = Address::parser())]
        name: Address,
        #[command(flatten)]
        properties: Properties,
        /// A new name
        #[arg(long = "name", value_name = "NAME")]
        rename: Option<String>,
    },
    /// Let a workspace live longer
    Extend {
        /// Which one
        #[arg(value_parser = Address::parser())]
        name: Address,
        /// When it ends: a time from now as in 2d, a date, or never
        #[arg(long, value_name = "TIME")]
        expires: String,
    },
    /// Remove workspaces
    Rm {
        /// Which ones
        #[arg(required = true, value_parser = Address::parser())]
        names: Vec<Address>,
        /// With all that is in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Give the space of a workspace back and keep what is needed to restore it (not in this release)
    Release {
        /// Which one
        #[arg(value_parser = Address::parser())]
        name: Address,
    },
    /// Bring a released workspace back (not in this release)
    Restore {
        /// Which one
        #[arg(value_parser = Address::parser())]
        name: Address,
    },
}

/// Properties that create and set take.
#[derive(ClapArgs, Debug, Default)]
struct Properties {
    /// Most bytes, as in 100TB; none for no limit
    #[arg(long, value_name = "SIZE")]
    quota: Option<String>,
    /// Most collections, as in 10000; none for no limit
    #[arg(long, value_name = "N")]
    files: Option<String>,
    /// When it ends: a time from now as in 2d, a date as in 2027-01-31, or never
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Keep an index of a metadata key, so that searches by it take time by their matches alone; may be given again.
    /// With set, those given replace those that were; none for no index
    #[arg(long = "index", value_name = "KEY")]
    indexes: Vec<String>,
    /// Who else may do what, as in user:bob=read,group:cfd=write. Stores of one user refuse it, as all are in this release
    #[arg(long, value_name = "LIST")]
    access: Option<String>,
    /// Whose it is: a login name, or uid:NUMBER. In a store of one user that is the only one
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    #[command(flatten)]
    metadata: MetadataArgs,
    #[command(flatten)]
    controls: ControlArgs,
}

impl Properties {
    /// Everything but the controls.
    fn read(&self) -> Result<WorkspaceAttr> {
        Ok(WorkspaceAttr {
            controls: None,
            layout: None,
            metadata: self.metadata.read()?,
            owner: self.owner.as_deref().map(ioverbs::user_id).transpose()?,
            access: self.access.as_deref().map(ioverbs::parse_access).transpose()?,
            indexes: match self.indexes.as_slice() {
                [none] if none == "none" => WorkspaceAttr::no_indexes(),
                some if some.iter().any(|key| key == "none") => {
                    return Err(Error::invalid("--index none stands for no index: give it alone, or leave it out")
                        .with_clause(Clause::O5));
                }
                some if some.iter().any(String::is_empty) => {
                    return Err(
                        Error::invalid("--index names no key; --index none is for no index").with_clause(Clause::O5)
                    );
                }
                some => some.to_vec(),
            },
            quota_bytes: self.quota.as_deref().map(quantity::read_limit).transpose()?,
            quota_collections: self.files.as_deref().map(quantity::read_limit).transpose()?,
            expires_ns: self.expires.as_deref().map(quantity::read_expiry).transpose()?,
        })
    }
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    match &args.what {
        What::Create { name, properties, exist_ok } => change::create(ctx, name, properties, *exist_ok),
        What::List { long, bytes } => ls::run(ctx, &ls::Args::of_workspaces(*long, *bytes)),
        What::Show { names, bytes } => show::show(ctx, names, *bytes),
        What::Set { name, properties, rename } => change::set(ctx, name, properties, rename.as_deref()),
        What::Extend { name, expires } => change::extend(ctx, name, expires),
        What::Rm { names, recursive } => remove::rm(ctx, names, *recursive),
        What::Release { name } => remove::released(name, "release"),
        What::Restore { name } => remove::released(name, "restore"),
    }
}
