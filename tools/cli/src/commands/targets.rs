//! `iov targets`: where the store's bytes can lie.

use ioverbs::{Session, StoreMap, Target};
use serde_json::{Value, json};

use crate::{ctx::Ctx, failure::Done, quantity};

/// List the targets of the store: what each is, where, and how it is
///
/// A target holds bytes: in shared memory, in files, and so on. `iov pattern` chooses among them for what is to be created.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

/// All targets of the store; of one that knows of none, the one that it has.
pub(crate) fn of(session: &Session) -> Done<StoreMap> {
    Ok(session.store_map()?)
}

/// A target, for other programs.
pub(crate) fn as_json(target: &Target) -> Value {
    let bounded = target.capacity > 0;
    json!({
        "number": target.number, "uuid": target.uuid.to_string(), "storage": target.storage,
        "medium": target.capability.medium, "host": target.host, "domain": target.domain,
        "addresses": target.addresses, "persistence": target.capability.durability.text(),
        "capacity": bounded.then_some(target.capacity), "free": bounded.then_some(target.free),
        "reach": target.reach.text(), "health": target.health.text(),
    })
}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let map = of(&ctx.session()?)?;
    if ctx.global.json {
        let all: Vec<Value> = map.targets.iter().map(as_json).collect();
        return ctx.out.line(json!({ "targets": all }));
    }
    if map.targets.is_empty() {
        return ctx.out.line("one target, in this process");
    }
    ctx.out.line(format_args!(
        "{:>6}  {:<8} {:<20} {:>10} {:>10}  {:<12} {:<18} {}",
        "target", "storage", "host", "capacity", "free", "survives", "state", "where"
    ))?;
    for target in &map.targets {
        let size = |bytes: u64| if target.capacity == 0 { "-".to_owned() } else { quantity::human(bytes) };
        let state = match target.health {
            ioverbs::Health::Good => target.reach.text().to_owned(),
            health => format!("{}, {}", target.reach.text(), health.text()),
        };
        ctx.out.line(format_args!(
            "{:>6}  {:<8} {:<20} {:>10} {:>10}  {:<12} {:<18} {}",
            target.number,
            target.storage,
            target.host,
            size(target.capacity),
            size(target.free),
            target.capability.durability.text(),
            state,
            if target.addresses.is_empty() { "the store's daemon".to_owned() } else { target.addresses.join(",") },
        ))?;
    }
    Ok(())
}
