//! Showing workspaces.

use ioverbs::{Error, Op, Output, Result, Stat, Value, Workspace, catalog::SearchSpec};
use serde_json::{Value as Json, json};

use crate::{
    address::Address,
    commands::stat,
    ctx::Ctx,
    facts::{self, Facts, everything},
    failure::Done,
    output::{Columns, JsonList, json_name, printable, quoted},
    quantity,
};

pub(super) fn show(ctx: &mut Ctx, names: &[Address], exact: bool) -> Done {
    let mut list = JsonList::default();
    for (i, name) in names.iter().enumerate() {
        if i > 0 && !ctx.global.json {
            ctx.out.line("")?;
        }
        let one = name.only_workspace().map_err(Into::into).and_then(|()| ctx.workspace(name));
        one.and_then(|ws| show_one(ctx, &ws, exact, &mut list)).or_else(|e| ctx.tell(e))?;
    }
    if ctx.global.json { ctx.end_list(&list) } else { Ok(()) }
}

/// Use, quotas, expiry.
pub(crate) fn usage(ws: &Workspace) -> Result<Stat> {
    match ioverbs::run(ws.session(), Op::WorkspaceStat { w: ws.clone() })?.output {
        Output::Stat(stat) => Ok(*stat),
        _ => Err(Error::internal("a workspace's stat returned no facts")),
    }
}

/// What a search tells of a workspace.
pub(crate) fn facts_of(ws: &Workspace) -> Result<Option<Facts>> {
    let spec = SearchSpec {
        predicate: Some("iov.uuid = ?".into()),
        params: vec![Value::Str(ws.uuid().to_string())],
        ..everything(facts::KEYS)
    };
    let page = facts::search_workspaces(ws.session(), spec)?.next_page(2)?;
    Ok(facts::only(page)?.map(Facts::new))
}

/// One workspace.
pub(crate) fn show_one(ctx: &mut Ctx, ws: &Workspace, exact: bool, list: &mut JsonList) -> Done {
    let stat = usage(ws)?;
    let user = facts_of(ws)?.map(|f| f.user).unwrap_or_default();
    let controls = ioverbs::text::format(&ws.defaults());
    let name = ws.name();
    let limit = |n: u64| if n == u64::MAX { Json::Null } else { json!(n) };
    if ctx.global.json {
        let expires = (stat.expires_ns != i64::MAX).then(|| quantity::rfc3339(stat.expires_ns));
        let object = json!({
            "address": json_name(name.as_bytes()),
            "name": json_name(name.as_bytes()),
            "kind": "workspace",
            "uuid": ws.uuid().to_string(),
            "bytes": stat.bytes,
            "quota_bytes": limit(stat.quota_bytes),
            "collections": stat.entries,
            "quota_collections": limit(stat.quota_collections),
            "expires": expires,
            "controls": controls,
            "indexes": ws.indexes(),
            "ctime": quantity::rfc3339(stat.ctime_ns),
            "owner": stat.uid,
            "writable": ws.writable(),
            "metadata": facts::pairs_json(&user),
        });
        return list.item(&mut ctx.out, &object);
    }
    let mut table = Columns::default();
    table.add("workspace", printable(name.as_bytes()));
    table.add("uuid", ws.uuid().to_string());
    table.add("used", of(quantity::size(stat.bytes, exact), stat.quota_bytes, |n| quantity::size(n, exact)));
    table.add("collections", of(stat.entries.to_string(), stat.quota_collections, |n| n.to_string()));
    table.add(
        "expires",
        match stat.expires_ns {
            i64::MAX => "never".to_owned(),
            ns => {
                let left = ns.saturating_sub(ioverbs::seam::now_ns());
                let when = quantity::local_minute(ns);
                match u64::try_from(left) {
                    Ok(left) => format!("{when}, in {}", quantity::span(left)),
                    Err(_) => {
                        format!("{when}: it is over; iov ws extend {} --expires TIME", quoted(name.as_bytes()))
                    }
                }
            }
        },
    );
    table.add("made", quantity::local_minute(stat.ctime_ns));
    table.add("owner", format!("uid {}{}", stat.uid, if ws.writable() { "" } else { "; you may only read" }));
    let indexes = ws.indexes().iter().map(|key| printable(key.as_bytes())).collect::<Vec<_>>().join(", ");
    table.add("indexes", if indexes.is_empty() { "none".to_owned() } else { indexes });
    table.add("controls", if controls.is_empty() { "the defaults".to_owned() } else { controls });
    table.print(&mut ctx.out)?;
    stat::metadata(ctx, &user)
}

fn of(used: String, quota: u64, text: impl Fn(u64) -> String) -> String {
    if quota == u64::MAX { used } else { format!("{used} of {}", text(quota)) }
}
