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

/// The directory that a store's files are in: its own, or the one that it says.
fn files_of(url: &str) -> Option<String> {
    let dir = url.strip_prefix("file:")?;
    let elsewhere = std::fs::read_to_string(std::path::Path::new(dir).join("storage")).ok();
    let elsewhere = elsewhere.as_deref().and_then(|text| text.lines().next()?.strip_prefix("files:"));
    let elsewhere = elsewhere.map(|text| text.rsplit_once(",io=").map_or(text, |(place, _)| place));
    Some(elsewhere.unwrap_or(dir).to_owned())
}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    // Whoever asks wants to know, also of a store whose daemon sleeps.
    let session = ctx.session()?;
    let url = session.url().to_owned();
    let (facts, medium) = match ctx.global.offline {
        Some(_) => (Vec::new(), session.capability().medium),
        None => {
            let facts = ioverbs::daemon_status_within(&url, ctx.timeout_ns()?)?.unwrap_or_default();
            (facts, ioverbs::daemon_medium_within(&url, ctx.timeout_ns()?)?.unwrap_or_default())
        }
    };
    let targets = session.store_map()?.targets;
    if targets.len() > 1 {
        return of_several(ctx, &url, &targets);
    }
    let fact = |name: &str| facts.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    let of = |what: &str| ["shm", "heap", "medium"].iter().find_map(|of| fact(&format!("{of}_{what}_bytes")));
    let in_shm = fact("shm_capacity_bytes").is_some();
    let below = match (in_shm, medium) {
        _ if ctx.global.offline.is_some() => ctx.place.as_deref().and_then(|dir| room(dir.to_str()?)),
        (true, _) => room("/dev/shm"),
        (_, "files") => files_of(&url).and_then(|dir| room(&dir)),
        _ => None,
    };
    let used = of("used");
    let capacity = of("capacity").or(below.as_ref().map(|r| r.all));
    let free = match (capacity, used, of("held")) {
        (Some(capacity), Some(used), held) => Some(capacity.saturating_sub(used).saturating_sub(held.unwrap_or(0))),
        _ => below.as_ref().map(|r| r.free),
    };
    if ctx.global.json {
        return ctx.out.line(json!({
            "store": url, "medium": medium, "capacity": capacity, "used": used, "free": free,
            "taken": of("made"), "held": of("held"),
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
    if let Some(held) = of("held").filter(|held| *held > 0) {
        table.add("held", format!("{} until a process that does not answer ends", quantity::human(held)));
    }
    if in_shm {
        table.add("taken of /dev/shm", human(of("made")));
        table.add("/dev/shm has free", human(below.map(|r| r.free)));
    }
    table.print(&mut ctx.out)
}

/// Of several targets each has room of its own.
fn of_several(ctx: &mut Ctx, url: &str, targets: &[ioverbs::Target]) -> Done {
    if ctx.global.json {
        let all: Vec<_> = targets.iter().map(super::targets::as_json).collect();
        return ctx.out.line(json!({ "store": url, "targets": all }));
    }
    let mut table = Columns::default();
    table.add("store", url.to_owned());
    for target in targets {
        let room = match target.capacity {
            0 => "no bounds of its own".to_owned(),
            _ => format!("{} free of {}", quantity::human(target.free), quantity::human(target.capacity)),
        };
        table.add(format!("target {}", target.number), format!("{}: {room}", target.storage));
    }
    table.print(&mut ctx.out)
}
