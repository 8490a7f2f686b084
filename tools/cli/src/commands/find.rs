//! `iov find`: streams what a predicate matches.

use std::collections::HashMap;

use iov_catalog::predicate::{Key, Predicate};
use ioverbs::{EntryKind, Error, Name, Uuid, Which, Workspace, catalog::SearchSpec, seam};
use serde_json::{Value as Json, json};

use crate::{
    address::Address,
    app,
    ctx::Ctx,
    facts::{self, Facts, everything},
    failure::{Done, Next},
    locate::find_in,
    output::{Columns, JsonList, printable, quoted},
    pairs, quantity,
};

/// Find collections and groups by their metadata
///
/// Matches are shown as they are found. The predicate compares keys with values: temperature > 300 and experiment = "nacelle" and iov.name ~ "run_*" and
/// exists(iteration) and iov.mtime > 2026-01-01T00:00:00Z. There are = != < <= > >= ~ (glob) ^= (prefix) in and or not,
/// and the system's keys iov.name, iov.size, iov.mtime, iov.ctime, iov.state, iov.kind, iov.owner, iov.uuid.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where to look: WS, or WS/GROUP for what is in a group and below it
    #[arg(value_parser = Address::parser())]
    address: Address,

    /// What to look for; everything if it is left out
    predicate: Option<String>,

    /// Only say how many there are
    #[arg(long, conflicts_with_all = ["order", "limit", "keys", "null"])]
    count: bool,

    /// Say how the predicate is read, and what the search costs
    #[arg(long, conflicts_with_all = ["count", "order", "limit", "keys", "null"])]
    explain: bool,

    /// Sort, as in "temperature desc, iov.name"
    #[arg(long, value_name = "KEYS")]
    order: Option<String>,

    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Metadata to show, system keys too; * is all user keys
    #[arg(short = 'k', long = "key", value_name = "KEY")]
    keys: Vec<String>,

    /// End each address with NUL, for xargs -0
    #[arg(short = '0', long, conflicts_with = "keys")]
    null: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let located = ctx.locate(&args.address)?;
    let Some(group) = located.as_group() else {
        located.facts()?;
        return Err(
            Error::invalid(format!("{} is a collection; find looks into a workspace or group", args.address)).into()
        );
    };
    let ws = &located.ws;
    if args.limit == Some(0) {
        return Err(Error::invalid("--limit 0 finds nothing; leave it out for all, or count with --count").into());
    }
    let spec = SearchSpec {
        predicate: args.predicate.clone(),
        // The whole workspace holds also what has no name.
        group: (!group.is_nil()).then_some(group),
        deep: !group.is_nil(),
        order: args.order.clone(),
        limit: args.limit.unwrap_or(0),
        ..everything(&[])
    };
    if args.explain {
        return explain(ctx, args, ws, spec);
    }
    if args.count {
        let n = count(ws, spec)?;
        return if ctx.global.json { ctx.out.line(json!({ "count": n })) } else { ctx.out.line(n) };
    }
    let keys = match (args.keys.is_empty(), ctx.global.json) {
        (true, true) => facts::KEYS.iter().map(|k| (*k).to_owned()).collect(),
        _ => args.keys.clone(),
    };
    matches(ctx, args, ws, SearchSpec { keys, ..spec })
}

fn begin(ws: &Workspace, spec: SearchSpec) -> Done<ioverbs::Cursor> {
    ioverbs::find(ws, spec).next(|| "iov help find has examples of predicates".into())
}

fn count(ws: &Workspace, spec: SearchSpec) -> Done<u64> {
    let cursor = begin(ws, SearchSpec { count: true, ..spec })?;
    Ok(cursor.count()?)
}

fn matches(ctx: &mut Ctx, args: &Args, ws: &Workspace, spec: SearchSpec) -> Done {
    let mut results = facts::Results::new(begin(ws, spec)?);
    let mut paths = Paths { ws, top: Address { path: Vec::new(), ..args.address.clone() }, known: HashMap::new() };
    let mut list = JsonList::default();
    loop {
        let page = results.next_page(1024)?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            ctx.stop.check()?;
            let address = paths.address(entry.group, entry.name.as_ref(), entry.uuid)?.to_bytes();
            if ctx.global.json {
                let chosen = (!args.keys.is_empty()).then(|| entry.metadata.clone().unwrap_or_default());
                let mut object = Facts::new(entry).json(&address);
                if let Some(chosen) = chosen {
                    // What was asked for by name is shown by that name.
                    object.retain(|key, _| matches!(key.as_str(), "address" | "name" | "kind" | "uuid"));
                    object.insert("metadata".into(), facts::pairs_json(&chosen));
                }
                list.item(&mut ctx.out, &Json::Object(object))?;
            } else if args.keys.is_empty() {
                ctx.out.name(&address, if args.null { b"\0" } else { b"\n" })?;
            } else {
                let pairs = entry.metadata.unwrap_or_default();
                let shown = |(k, v): &(String, _)| printable(format!("{k}={}", pairs::text(v)).as_bytes());
                ctx.out.name(&address, b"\t")?;
                ctx.out.line(pairs.iter().map(shown).collect::<Vec<_>>().join("\t"))?;
            }
        }
        // Whoever reads along sees each page when it is there.
        ctx.out.flush()?;
    }
    if ctx.global.json { list.end(&mut ctx.out) } else { Ok(()) }
}

/// Addresses of what was found, for which a group is looked up once.
struct Paths<'a> {
    ws: &'a Workspace,
    top: Address,
    known: HashMap<Uuid, Address>,
}

/// Groups that are remembered; more are looked up again.
const KNOWN: usize = 1 << 16;

impl Paths<'_> {
    fn address(&mut self, group: Uuid, name: Option<&Name>, uuid: Uuid) -> Done<Address> {
        match name {
            Some(name) => Ok(self.group(group)?.join(Which::Name(name.clone()))),
            None => Ok(self.top.join(Which::Uuid(uuid))),
        }
    }

    fn group(&mut self, group: Uuid) -> Done<Address> {
        if group.is_nil() {
            return Ok(self.top.clone());
        }
        if let Some(known) = self.known.get(&group) {
            return Ok(known.clone());
        }
        let found = find_in(self.ws, Uuid::NIL, &Which::Uuid(group), &[])?;
        let address = match found {
            Some(facts) if facts.kind == EntryKind::Group => self.address(facts.group, facts.name.as_ref(), group)?,
            // It was removed meanwhile; its members can still be named by where they were.
            _ => self.top.join(Which::Uuid(group)),
        };
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(group, address.clone());
        Ok(address)
    }
}

fn explain(ctx: &mut Ctx, args: &Args, ws: &Workspace, spec: SearchSpec) -> Done {
    let text = args.predicate.as_deref().unwrap_or("");
    let read = match &args.predicate {
        Some(text) => Some(Predicate::parse(text, &[]).next(|| "iov help find has examples of predicates".into())?),
        None => None,
    };
    let (mut user, mut system) = (Vec::new(), Vec::new());
    for key in read.iter().flat_map(|p| p.keys()) {
        match key {
            Key::User(key) => user.push(key.clone()),
            Key::System(key) => system.push(key.text()),
        }
    }
    let before = app::counted(ctx);
    let started = seam::monotonic_ns();
    let matches = count(ws, spec)?;
    let took = (seam::monotonic_ns() - started) as u64;
    let requests =
        |counted: &[(&str, u64)]| counted.iter().find(|(n, _)| *n == "metadata_requests").map_or(0, |(_, n)| *n);
    let requests = requests(&app::counted(ctx)) - requests(&before);
    let read = read.map_or_else(|| "everything".to_owned(), |p| p.to_string());
    let declared = ws.indexes();
    let indexed: Vec<&String> = user.iter().filter(|key| declared.contains(key)).collect();
    let index = match user.iter().find(|key| !declared.contains(key)) {
        Some(key) => {
            // Those given replace those that were.
            let all = declared.iter().chain([key]).map(|key| format!(" --index {}", quoted(key.as_bytes())));
            let set = format!("iov ws set {}{}", args.address.workspace_quoted(), all.collect::<String>());
            format!("{set} makes a search by {} take time by its matches alone", printable(key.as_bytes()))
        }
        None => String::new(),
    };
    if ctx.global.json {
        return ctx.out.line(json!({
            "predicate": text, "read_as": read, "user_keys": user, "system_keys": system, "indexed_keys": indexed,
            "matches": matches, "requests": requests, "time_ns": took,
        }));
    }
    let mut table = Columns::default();
    table.add("read as", printable(read.as_bytes()));
    table.add("where", args.address.to_string());
    table.add("user keys", user.join(", "));
    table.add("system keys", system.join(", "));
    table.add("matches", matches.to_string());
    table.add("cost", format!("{requests} requests, {}", quantity::span(took)));
    if !user.is_empty() {
        let indexed = indexed.iter().map(|key| printable(key.as_bytes())).collect::<Vec<_>>().join(", ");
        table.add("indexes", if indexed.is_empty() { "of none of these keys".to_owned() } else { indexed });
    }
    if !index.is_empty() {
        table.add("", index);
    }
    table.print(&mut ctx.out)
}
