//! `iov cp`: copies within a store.

use ioverbs::{Controls, EntryKind, Error, Metadata, Name, Op, Parent, Uuid, Which, Workspace, posix};

use crate::{
    address::Address,
    ctx::Ctx,
    facts::{self, Facts, members},
    failure::{Done, Next},
    locate::{Spot, What, find_in},
    modes,
    options::{ControlArgs, IfExists, MetadataArgs},
    transfer::store::{Content, Item, Place, Storer},
};

/// Copy collections and groups within a store
///
/// Metadata and controls are copied too, unless -m and -c say otherwise, and modes without what the umask takes. A reader sees nothing of a copy until it is complete. Holes stay holes.
#[derive(clap::Args, Debug)]
#[command(override_usage = "iov cp [OPTIONS] <SOURCE>... <TARGET>")]
pub(crate) struct Args {
    /// What to copy, and last where to: a new name, a group or a workspace
    #[arg(required = true, num_args = 2.., value_parser = Address::parser(), value_name = "SOURCE… TARGET")]
    addresses: Vec<Address>,

    /// Groups with all that is in them
    #[arg(short, long)]
    recursive: bool,

    #[command(flatten)]
    metadata: MetadataArgs,

    #[command(flatten)]
    controls: ControlArgs,

    /// What to do where the name is taken
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    if_exists: IfExists,

    /// Say what was copied
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let Some((target, sources)) = args.addresses.split_last() else {
        return Err(Error::invalid("cp needs a source and a target").into());
    };
    let metadata = args.metadata.read()?;
    args.controls.read()?;
    let to = ctx.locate(target)?;
    if to.as_group().is_none() && (sources.len() > 1 || target.slash) {
        return Err(Error::invalid(format!("{target} is no group: several sources go into one")).into());
    }
    let storer = Storer::new(ctx, &to.ws, "cp", sources.len(), args.if_exists, args.verbose);
    let mut copy = Copy { args, ws: to.ws.clone(), metadata, storer };
    for source in sources {
        let (group, name) = match (to.as_group(), &to.what) {
            (Some(group), _) => (group, None),
            (None, What::Missing(name)) => (to.group, Some(name.clone())),
            (None, _) => (to.group, to.facts()?.name.clone()),
        };
        let at = if name.is_none() { Address { slash: false, ..target.clone() } } else { target.parent() };
        copy.one(ctx, source, group, at, name).or_else(|e| ctx.tell(e))?;
    }
    copy.storer.end(ctx)
}

struct Copy<'a> {
    args: &'a Args,
    ws: Workspace,
    metadata: Metadata,
    storer: Storer,
}

impl Copy<'_> {
    fn one(&mut self, ctx: &mut Ctx, source: &Address, group: Uuid, at: Address, name: Option<Name>) -> Done {
        let from = ctx.locate(source)?;
        let facts = from.facts()?.clone();
        let name = name.or_else(|| facts.name.clone());
        let name = name.ok_or_else(|| Error::invalid(format!("{source} has no name: say which one the copy gets")))?;
        let parent = ctx.open_group(&self.ws, group)?;
        if !facts.is_group() {
            let spot = from.spot(ctx)?;
            return self.collection(ctx, spot, source, &facts, Place { parent, at, name });
        }
        if !self.args.recursive {
            return Err(Error::invalid(format!("{source} is a group")))
                .next(|| "-r copies it with all that is in it".into());
        }
        self.group(ctx, &from.ws, source, &facts, Place { parent, at, name }, &mut Vec::new())
    }

    fn metadata_of(&self, facts: &Facts) -> Done<Metadata> {
        let mut metadata = Metadata::new();
        // The mode of the copy is not all that its source has, and a list without that would let others do more, or less.
        for (key, value) in facts.user.iter().filter(|(key, _)| !posix::is_acl_key(key)) {
            metadata.set(key.clone(), value.clone())?;
        }
        metadata.merge(&self.metadata);
        Ok(metadata)
    }

    fn collection(&mut self, ctx: &mut Ctx, from: Spot, source: &Address, facts: &Facts, place: Place) -> Done {
        let mut controls = facts.read_controls()?;
        self.args.controls.read_over(&mut controls)?;
        let metadata = self.metadata_of(facts)?;
        let content = Content::Copy(from, Box::new(facts.clone()));
        let source = source.to_string().into();
        self.storer
            .add(ctx, Item { source, place, content, metadata, controls, mode: modes::of_copy(facts) })
            .map_err(|e| e.about(format_args!("{}", facts_label(facts))))
    }

    /// `made` are the groups that this copy has made, into which it does not descend: a group may be copied into itself.
    fn group(
        &mut self,
        ctx: &mut Ctx,
        from: &Workspace,
        source: &Address,
        facts: &Facts,
        place: Place,
        made: &mut Vec<Uuid>,
    ) -> Done {
        let address = place.address();
        let parent = self.open_or_make(ctx, facts, &place)?;
        let source_group = ctx.open_group(from, facts.uuid)?;
        if let Some(group) = &parent {
            made.push(group.uuid()?);
        }
        let mut groups = Vec::new();
        let mut results = facts::search(from, members(facts.uuid, facts::KEYS))?;
        while let Some(entry) = results.next()? {
            ctx.stop.check()?;
            let facts = Facts::new(entry);
            let Some(name) = facts.name.clone() else { continue };
            let place = Place { parent: parent.clone(), at: address.clone(), name: name.clone() };
            let which = Which::Name(name);
            let source = source.join(which.clone());
            if facts.is_group() {
                groups.push((source, facts, place));
            } else {
                let spot = Spot { ws: from.clone(), parent: source_group.clone(), which };
                self.collection(ctx, spot, &source, &facts, place).or_else(|e| ctx.tell(e))?;
            }
        }
        drop(results);
        for (source, facts, place) in groups {
            if !made.contains(&facts.uuid) {
                self.group(ctx, from, &source, &facts, place, made).or_else(|e| ctx.tell(e))?;
            }
        }
        Ok(())
    }

    fn open_or_make(&mut self, ctx: &mut Ctx, facts: &Facts, place: &Place) -> Done<Parent> {
        let group = place.parent.as_ref().map_or(Ok(Uuid::NIL), |g| g.uuid())?;
        if let Some(there) = find_in(&self.ws, group, &Which::Name(place.name.clone()), &[])? {
            return ctx.open(&self.ws, EntryKind::Group, there.uuid).map(Some);
        }
        let out = self.ws.pending(EntryKind::Group);
        let create = Op::Create {
            out: out.clone(),
            parent: place.parent.clone(),
            name: Some(place.name.clone()),
            metadata: self.metadata_of(facts)?,
            controls: Controls::default(),
        };
        modes::make(ctx, create, &out, modes::of_copy(facts))??;
        Ok(Some(out))
    }
}

fn facts_label(facts: &Facts) -> String {
    crate::output::printable(&facts.label())
}
