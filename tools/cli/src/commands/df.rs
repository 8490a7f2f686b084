//! `iov df`: how much room a store has, and who has taken it.

use serde_json::json;

use crate::{ctx::Ctx, failure::Done, output::Columns, quantity};

/// Show how much room the store has
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

/// Room in a file system.
struct Room {
    all: u64,
    free: u64,
}

fn room(path: &str) -> Option<Room> {
    let facts = rustix::fs::statvfs(path).ok()?;
    Some(Room { all: facts.f_blocks * facts.f_frsize, free: facts.f_bavail * facts.f_frsize })
}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    // Whoever asks wants to know, also of a store whose daemon sleeps.
    let url = ctx.session()?.url().to_owned();
    let facts = ioverbs::daemon_status_within(&url, ctx.timeout_ns()?)?.unwrap_or_default();
    let fact = |name: &str| facts.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    let directory = url.strip_prefix("file:").and_then(room);
    let (medium, below) = match fact("shm_capacity_bytes") {
        Some(_) => ("shared memory", room("/dev/shm")),
        None => ("files", directory),
    };
    let used = fact("shm_used_bytes");
    let capacity = fact("shm_capacity_bytes").or(below.as_ref().map(|r| r.all));
    let free = match (capacity, used, fact("shm_held_bytes")) {
        (Some(capacity), Some(used), held) => Some(capacity.saturating_sub(used).saturating_sub(held.unwrap_or(0))),
        _ => below.as_ref().map(|r| r.free),
    };
    if ctx.global.json {
        return ctx.out.line(json!({
            "store": url, "medium": medium, "capacity": capacity, "used": used, "free": free,
            "taken": fact("shm_made_bytes"), "held": fact("shm_held_bytes"),
            "below": below.map(|r| json!({ "capacity": r.all, "free": r.free })),
        }));
    }
    let human = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), quantity::human);
    let mut table = Columns::default();
    table.add("store", url);
    table.add("bytes lie in", medium.to_owned());
    table.add("capacity", human(capacity));
    if used.is_some() {
        table.add("used", human(used));
    }
    table.add("free", human(free));
    if let Some(held) = fact("shm_held_bytes").filter(|held| *held > 0) {
        table.add("held", format!("{} until a process that does not answer ends", quantity::human(held)));
    }
    if used.is_some() {
        table.add("taken of /dev/shm", human(fact("shm_made_bytes")));
        table.add("/dev/shm has free", human(below.map(|r| r.free)));
    }
    table.print(&mut ctx.out)
}
