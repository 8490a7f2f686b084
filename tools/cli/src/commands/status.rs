//! `iov status`: whether the daemon of a store runs, and how it is.

use serde_json::{Map, json};

use crate::{ctx::Ctx, failure::Done, output::Columns, quantity};

/// Say whether the store's daemon runs, and how it is
///
/// Nothing is started for that.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let url = ctx.url()?;
    let facts = ioverbs::daemon_status_within(&url, ctx.timeout_ns()?)?;
    if ctx.global.json {
        let running = facts.is_some();
        let facts: Map<_, _> = facts.into_iter().flatten().map(|(k, v)| (k, json!(v))).collect();
        return ctx.out.line(json!({ "store": url, "running": running, "daemon": facts }));
    }
    let Some(facts) = facts else {
        return ctx.out.line(format_args!("{url}: no daemon runs; the next command starts one"));
    };
    let mut table = Columns::default();
    table.add("store", url);
    for (name, value) in facts {
        match name.strip_suffix("_ns") {
            Some(name) => table.add(name, quantity::span(value)),
            None => table.add(name, value.to_string()),
        }
    }
    table.print(&mut ctx.out)
}
