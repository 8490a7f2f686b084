//! `iov stats`: counters of a store's daemon, and of the session that asks.

use serde_json::{Map, Value, json};

use crate::{app, ctx::Ctx, failure::Done};

/// Show the counters of the store's daemon and of this session
///
/// With --stats every command shows what it has cost itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let url = ctx.url()?;
    let session = ctx.session()?;
    // One question, so that the numbers below are those of a store that answers.
    crate::facts::search_workspaces(
        &session,
        ioverbs::catalog::SearchSpec { count: true, ..crate::facts::everything(&[]) },
    )?;
    let daemon = match url.starts_with("file:") {
        true => ioverbs::daemon_status_within(&url, ctx.timeout_ns()?)?,
        false => None,
    };
    let own = app::counted(ctx);
    if ctx.global.json {
        let map = |pairs: Vec<(String, u64)>| -> Map<String, Value> {
            pairs.into_iter().map(|(k, v)| (k, json!(v))).collect()
        };
        let own = own.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let daemon = daemon.map_or(Value::Null, |d| map(d).into());
        return ctx.out.line(json!({ "store": url, "session": map(own), "daemon": daemon }));
    }
    match daemon {
        Some(facts) => {
            ctx.out.line("daemon")?;
            for (name, n) in facts {
                ctx.out.line(format_args!("  {name:<24} {n}"))?;
            }
        }
        None => ctx.out.line(format_args!("{url} has no daemon: it lives in this process"))?,
    }
    ctx.out.line("this session")?;
    for (name, n) in own {
        ctx.out.line(format_args!("  {name:<24} {n}"))?;
    }
    Ok(())
}
