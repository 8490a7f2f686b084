//! `iov trace show`: what a store's target was asked to do, and how long each call took.

use std::{collections::BTreeMap, path::PathBuf};

use ioverbs::{Kind, TraceEntry, TraceEvent, TraceReader, VerbKind};
use serde_json::json;

use crate::{
    ctx::Ctx,
    failure::{Done, Failure},
    quantity,
};

/// Look at what a store's target was asked to do
///
/// `iov up --trace FILE` records it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Show the calls of a trace, also while it grows: when, how long, what, of which collection, which bytes, and how it went
    Show {
        /// What `iov up --trace` has written
        file: PathBuf,

        /// Show one line for each kind of call: how many, how many bytes, and how long they took
        #[arg(long)]
        summary: bool,

        /// Show only calls that failed
        #[arg(long)]
        failed: bool,

        /// Show only calls of this collection, by its UUID
        #[arg(long, value_name = "UUID")]
        collection: Option<String>,
    },
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let What::Show { file, summary, failed, collection } = &args.what;
    let reader = TraceReader::open(file)?;
    let wanted = |event: &TraceEvent| {
        (!failed || event.error.is_some())
            && collection.as_ref().is_none_or(|uuid| event.object.collection.to_string() == *uuid)
    };
    let mut show = Show { began: None, trouble: (0, 0), sums: BTreeMap::new() };
    for entry in reader {
        match entry? {
            TraceEntry::Begin(when) => {
                // Times of a run count from its beginning.
                show.began = Some(when);
                if !*summary {
                    show.begin(ctx, when)?;
                }
            }
            TraceEntry::Missing(calls) => show.trouble.0 += calls,
            TraceEntry::Damaged => show.trouble.1 += 1,
            TraceEntry::Call(event) if !wanted(&event) => {}
            TraceEntry::Call(event) if *summary => show.sums.entry(event.verb as u8).or_default().add(&event),
            TraceEntry::Call(event) => show.call(ctx, &event)?,
        }
    }
    if *summary {
        show.summary(ctx)?;
    }
    let (missing, damaged) = show.trouble;
    if missing + damaged > 0 {
        let text = format!(
            "{missing} calls could not be written to the trace, and {damaged} of its records are damaged; the rest was shown"
        );
        return Err(Failure::from(ioverbs::Error::new(Kind::Corrupt, text)));
    }
    Ok(())
}

struct Show {
    /// When the process began whose calls these are.
    began: Option<u64>,
    /// Calls that are missing, and records that are damaged.
    trouble: (u64, u64),
    sums: BTreeMap<u8, Sum>,
}

/// Calls of one kind.
#[derive(Default)]
struct Sum {
    name: &'static str,
    bytes: u64,
    failed: u64,
    took: Vec<u64>,
}

impl Sum {
    fn add(&mut self, event: &TraceEvent) {
        self.name = event.verb.text();
        self.bytes += event.bytes;
        self.failed += u64::from(event.error.is_some());
        self.took.push(event.duration_ns.max(0) as u64);
    }

    /// The duration that so many of a hundred calls do not exceed.
    fn percentile(&self, n: usize) -> u64 {
        let at = (self.took.len() * n).div_ceil(100).max(1) - 1;
        self.took.get(at).copied().unwrap_or(0)
    }
}

impl Show {
    fn begin(&self, ctx: &mut Ctx, when: u64) -> Done {
        let when = quantity::rfc3339(when as i64);
        match ctx.global.json {
            true => ctx.out.line(json!({ "began": when })),
            false => ctx.out.line(format_args!("a daemon began at {when}")),
        }
    }

    fn call(&self, ctx: &mut Ctx, event: &TraceEvent) -> Done {
        let error = event.error.map(Kind::c_name);
        if ctx.global.json {
            return ctx.out.line(json!({
                "time": quantity::rfc3339(event.started_ns), "duration_ns": event.duration_ns,
                "call": event.verb.text(), "collection": event.object.collection.to_string(), "slot": event.object.slot,
                "session": event.session.to_string(), "offset": event.offset, "len": event.len, "bytes": event.bytes,
                "staged": event.staged, "durability": event.durability.map(ioverbs::Persistence::text),
                "error": error, "outcome": event.error.map(|_| event.outcome.text()),
            }));
        }
        let since = (event.started_ns as u64).saturating_sub(self.began.unwrap_or(0));
        let mut notes = Vec::new();
        notes.extend(event.staged.then(|| "staged".to_owned()));
        notes.extend(event.durability.map(|level| level.text().to_owned()));
        notes.extend(error.map(|name| format!("{name} {}", event.outcome.text())));
        let moves = matches!(event.verb, VerbKind::Read | VerbKind::Write | VerbKind::Append | VerbKind::Copy);
        if error.is_none() && moves && event.bytes < event.len {
            notes.push(format!("{} bytes", event.bytes));
        }
        let line = format!(
            "{:>12.6} {:>10} {:<8} {} {:>12} +{:<10} {}",
            since as f64 / 1e9,
            quantity::span(event.duration_ns.max(0) as u64),
            event.verb.text(),
            event.object.collection,
            event.offset,
            event.len,
            notes.join(", "),
        );
        ctx.out.line(line.trim_end())
    }

    fn summary(&mut self, ctx: &mut Ctx) -> Done {
        if !ctx.global.json {
            ctx.out.line(format_args!(
                "{:<8} {:>9} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9}",
                "call", "calls", "failed", "bytes", "median", "99 %", "longest", "in all"
            ))?;
        }
        for sum in self.sums.values_mut() {
            sum.took.sort_unstable();
            let calls = sum.took.len();
            let all: u64 = sum.took.iter().sum();
            let (median, most, longest) = (sum.percentile(50), sum.percentile(99), sum.percentile(100));
            if ctx.global.json {
                ctx.out.line(json!({
                    "call": sum.name, "calls": calls, "failed": sum.failed, "bytes": sum.bytes, "median_ns": median,
                    "p99_ns": most, "max_ns": longest, "total_ns": all,
                }))?;
                continue;
            }
            let [median, most, longest, all] = [median, most, longest, all].map(quantity::span);
            let bytes = quantity::human(sum.bytes);
            let (name, failed) = (sum.name, sum.failed);
            ctx.out.line(format_args!(
                "{name:<8} {calls:>9} {failed:>7} {bytes:>11} {median:>9} {most:>9} {longest:>9} {all:>9}"
            ))?;
        }
        Ok(())
    }
}
