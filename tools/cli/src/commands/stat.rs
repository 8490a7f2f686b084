//! `iov stat`: the facts, controls and metadata of an object.

use ioverbs::{Concurrency, EntryKind, Kind, Lifetime, Op, Output, Stat, Uuid, Workspace, text};
use serde_json::{Map, Value as Json, json};

use crate::{
    address::Address,
    ctx::Ctx,
    facts::{Facts, kind_text, pairs_json},
    failure::Done,
    locate::What,
    output::{Columns, JsonList, printable},
    pairs, quantity,
};

/// Show the facts, controls and metadata of a collection, group or workspace
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS, WS/NAME or WS/GROUP/NAME
    #[arg(required = true, value_parser = Address::parser())]
    addresses: Vec<Address>,

    /// Sizes in bytes
    #[arg(long)]
    bytes: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let mut list = JsonList::default();
    for (i, address) in args.addresses.iter().enumerate() {
        if i > 0 && !ctx.global.json {
            ctx.out.line("")?;
        }
        one(ctx, args, address, &mut list).or_else(|e| ctx.tell(e))?;
    }
    if ctx.global.json { ctx.end_list(&list) } else { Ok(()) }
}

fn one(ctx: &mut Ctx, args: &Args, address: &Address, list: &mut JsonList) -> Done {
    let located = ctx.locate(address)?;
    if let What::Root = located.what {
        return super::ws::show_one(ctx, &located.ws, args.bytes, list);
    }
    let facts = located.facts()?.clone();
    let live = live(ctx, &located.ws, &facts)?;
    if ctx.global.json {
        let mut object = facts.json(&address.to_bytes());
        if let Some(stat) = &live {
            object.extend(stat_json(stat));
        }
        return list.item(&mut ctx.out, &Json::Object(object));
    }
    let mut table = Columns::default();
    table.add("address", address.to_string());
    describe(&mut table, &facts, live.as_ref(), args.bytes);
    table.print(&mut ctx.out)?;
    metadata(ctx, &facts.user)
}

/// The facts as they are now. What is held exclusively is not opened: then those of the last publication remain.
pub(crate) fn live(ctx: &mut Ctx, ws: &Workspace, facts: &Facts) -> Done<Option<Stat>> {
    if facts.read_controls()?.concurrency == Some(Concurrency::Exclusive) && facts.state.as_deref() != Some("sealed") {
        return Ok(None);
    }
    let handle = match ctx.open(ws, facts.kind, facts.uuid) {
        Ok(handle) => handle,
        // Held by somebody, or replaced since it was found.
        Err(e) if matches!(e.kind(), Some(Kind::Busy | Kind::NotFound)) => return Ok(None),
        Err(e) => return Err(e),
    };
    let status = ioverbs::run(ws.session(), Op::Stat { c: handle.clone() })?;
    ioverbs::close(&handle)?;
    match status.output {
        Output::Stat(stat) => Ok(Some(*stat)),
        _ => Ok(None),
    }
}

fn stat_json(stat: &Stat) -> Map<String, Json> {
    let mut out = Map::new();
    let mut add = |key: &str, value: Json| drop(out.insert(key.into(), value));
    if stat.kind == EntryKind::Group {
        add("entries", json!(stat.entries));
    } else {
        add("size", json!(stat.bytes));
        add("allocated", json!(stat.allocated));
        add("version", json!(stat.version));
        add("lifetime", json!(text::format_lifetime(stat.lifetime.unwrap_or(Lifetime::KEPT))));
    }
    add("links", json!(stat.links));
    add("revision", json!(stat.revision));
    add("group_id", json!(stat.gid));
    if stat.mtime_ns != 0 {
        add("mtime", json!(quantity::rfc3339(stat.mtime_ns)));
    }
    out
}

fn exactly(bytes: u64, exact: bool) -> String {
    if exact || bytes < 1024 { format!("{bytes} B") } else { format!("{} ({bytes} B)", quantity::human(bytes)) }
}

fn describe(table: &mut Columns, facts: &Facts, live: Option<&Stat>, exact: bool) {
    let state = facts.state.as_ref().map_or(String::new(), |s| format!(", {s}"));
    table.add("kind", format!("{}{state}", kind_text(facts.kind)));
    table.add("uuid", facts.uuid.to_string());
    match (facts.kind, live) {
        (EntryKind::Group, Some(stat)) => table.add("members", stat.entries.to_string()),
        (EntryKind::Group, None) => {}
        (_, Some(stat)) => {
            let allocated = exactly(stat.allocated, exact);
            table.add("size", format!("{}, {allocated} allocated", exactly(stat.bytes, exact)));
        }
        (_, None) => table.add("size", format!("{} when it was last published", exactly(facts.size, exact))),
    }
    let mtime = live.map_or(facts.mtime_ns, |s| s.mtime_ns);
    for (what, ns) in [("changed", mtime), ("made", facts.ctime_ns)] {
        if ns != 0 {
            table.add(what, quantity::local_exact(ns));
        }
    }
    if let (Some(owner), Some(mode)) = (facts.owner, facts.mode) {
        table.add("owner", format!("uid {owner}, mode {mode:04o}"));
    }
    if let Some(stat) = live {
        table.add("names", stat.links.to_string());
        if let Some(lifetime) = stat.lifetime {
            table.add("lifetime", text::format_lifetime(lifetime));
        }
    }
    table.add("layout", facts.layout.clone().unwrap_or_default());
    for (i, control) in facts.controls.as_deref().unwrap_or("").split(',').enumerate() {
        table.add(if i == 0 { "controls" } else { "" }, control);
    }
}

/// User pairs, each with its type.
pub(crate) fn metadata(ctx: &mut Ctx, user: &[(String, ioverbs::Value)]) -> Done {
    if user.is_empty() {
        return Ok(());
    }
    ctx.out.line("metadata")?;
    let width = user.iter().map(|(k, _)| printable(k.as_bytes()).chars().count()).max().unwrap_or(0);
    for (key, value) in user {
        let key = printable(key.as_bytes());
        let text = printable(pairs::text(value).as_bytes());
        ctx.out.line(format_args!("  {key:<width$}  {:<5}  {text}", pairs::type_name(value)))?;
    }
    Ok(())
}

/// What `--json` shows of something that has metadata and nothing else to say.
pub(crate) fn metadata_json(address: &Address, uuid: Uuid, user: &[(String, ioverbs::Value)]) -> Json {
    json!({ "address": crate::output::json_name(&address.to_bytes()), "uuid": uuid.to_string(), "metadata": pairs_json(user) })
}
