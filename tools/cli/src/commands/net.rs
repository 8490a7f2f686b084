//! `iov net`: how this machine reaches the daemons of the store.

use ioverbs::Route;
use serde_json::{Value, json};

use crate::{ctx::Ctx, failure::Done, quantity};

/// Show how the store's daemons are reached from here: by what, at which address, and how far away each is
///
/// Each is asked a few times how it is; the shortest round trip counts.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

fn as_json(route: &Route) -> Value {
    let (ns, error) = match &route.round_trip_ns {
        Ok(ns) => (Some(*ns), None),
        Err(e) => (None, Some(e.to_string())),
    };
    json!({
        "target": route.target, "by": route.by, "at": route.at, "connections": route.connections, "round_trip_ns": ns,
        "error": error,
    })
}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let session = ctx.session()?;
    let routes = session.routes();
    if ctx.global.json {
        let all: Vec<Value> = routes.iter().map(as_json).collect();
        return ctx.out.line(json!({ "routes": all }));
    }
    if routes.is_empty() {
        return ctx.out.line("nothing is reached: the store is in this process");
    }
    ctx.out
        .line(format_args!("{:<10} {:<5} {:<28} {:>11}  {}", "to target", "by", "at", "connections", "round trip"))?;
    for route in &routes {
        let at = if route.at.is_empty() { "this machine" } else { &route.at };
        let trip = match &route.round_trip_ns {
            Ok(ns) => quantity::span(*ns),
            Err(e) => e.to_string(),
        };
        let to = if route.target == 0 { "0, catalog".to_owned() } else { route.target.to_string() };
        ctx.out.line(format_args!("{to:<10} {:<5} {at:<28} {:>11}  {trip}", route.by, route.connections))?;
    }
    Ok(())
}
