//! `iov why`: what stands in the way of using an object, and what to do about it.

use ioverbs::{
    BatchAttr, Clause, Collection, Concurrency, EntryKind, Error, Kind, Mutability, OnError, Op, OpState, Output,
    Range, Stat, Which, catalog::LockSpec, limits, seam,
};
use serde_json::json;

use crate::{
    address::Address,
    advice::advice,
    ctx::Ctx,
    facts::Facts,
    failure::{Done, Failure},
    locate::{Located, What},
    output::{JsonList, printable},
    quantity,
    transfer::check,
};

/// Say what stands in the way of using an object
///
/// Looked at are holds, locks, its state, rights, quotas and the expiry of its workspace. What has checksums (from persistence=durable upward, and small collections) is read as a whole, to
/// see whether it is damaged; not so what is exclusive and unsealed, which nobody else could have meanwhile.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME, WS/GROUP or WS
    #[arg(value_parser = Address::parser())]
    address: Address,

    /// Do not read its bytes
    #[arg(long)]
    quick: bool,
}

/// One thing that stands in the way.
struct Finding {
    /// Whether it stops every use, or only changes.
    stops: &'static str,
    why: String,
    clause: Option<Clause>,
    next: String,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let located = ctx.locate(&args.address)?;
    if let What::Missing(_) = located.what {
        return located.facts().map(drop);
    }
    let mut findings = Vec::new();
    let usage = super::ws::usage(&located.ws)?;
    workspace(&located, &usage, &mut findings);
    if let What::Found(facts) = &located.what {
        state(facts, &mut findings)?;
        opens(ctx, args, &located, facts, &mut findings)?;
    }
    print(ctx, &args.address, &findings)
}

fn workspace(located: &Located, usage: &Stat, findings: &mut Vec<Finding>) {
    let name = located.address.workspace_quoted();
    let mut add = |why: String, clause, next: String| {
        findings.push(Finding { stops: "changes", why, clause: Some(clause), next });
    };
    if usage.expires_ns <= seam::now_ns() {
        let when = quantity::local_minute(usage.expires_ns);
        add(
            format!("the workspace has expired, on {when}"),
            Clause::O1,
            format!("iov ws extend {name} --expires TIME"),
        );
    } else if !located.ws.writable() {
        let why = format!("you may only read in the workspace; it belongs to uid {}", usage.uid);
        add(why, Clause::A1, format!("its owner can give you rights: iov ws set {name} --access user:YOU=write"));
    }
    if usage.bytes >= usage.quota_bytes {
        let why =
            format!("the quota is used up: {} of {}", quantity::human(usage.bytes), quantity::human(usage.quota_bytes));
        add(why, Clause::O1, format!("remove something, or: iov ws set {name} --quota SIZE"));
    }
    if usage.entries >= usage.quota_collections {
        let why = format!("the workspace has as many collections as it may have: {}", usage.quota_collections);
        add(why, Clause::O1, format!("remove some, or: iov ws set {name} --files N"));
    }
}

fn state(facts: &Facts, findings: &mut Vec<Finding>) -> Done {
    let controls = facts.read_controls()?;
    let mut add = |why: &str, clause, next: &str| {
        findings.push(Finding { stops: "changes", why: why.into(), clause: Some(clause), next: next.into() });
    };
    match facts.state.as_deref() {
        Some("sealed") => {
            add("it is sealed: bytes and size are fixed for good", Clause::M2, "write to a new collection")
        }
        Some("staging") => add(
            "it is being made: it is immutable and not sealed yet",
            Clause::M2,
            "wait until its writer seals it; without a writer it is kept for 24 h",
        ),
        _ if controls.mutability == Some(Mutability::Append) => {
            add(
                "it is append only: nothing that is there can be changed",
                Clause::M4,
                "append to it, or write to a new collection",
            );
        }
        _ => {}
    }
    Ok(())
}

/// Whether it can be opened, and what others have locked.
fn opens(ctx: &mut Ctx, args: &Args, located: &Located, facts: &Facts, findings: &mut Vec<Finding>) -> Done {
    if facts.read_controls()?.concurrency == Some(Concurrency::Exclusive) && facts.state.as_deref() != Some("sealed") {
        return alone(args, located, facts, findings);
    }
    // By its UUID: an open by name needs its group open, which may be exclusive.
    let c = match ctx.open(&located.ws, facts.kind, facts.uuid) {
        Ok(c) => c,
        Err(Failure::Error { error, .. }) => {
            findings.push(refused(&error));
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    if facts.kind == EntryKind::Collection {
        locks(&c, findings)?;
        if !args.quick {
            damage(ctx, &c, findings)?;
        }
    }
    Ok(ioverbs::close(&c)?)
}

/// What whoever opens it has alone. It is not opened: while its bytes are read nobody else could have it.
fn alone(args: &Args, located: &Located, facts: &Facts, findings: &mut Vec<Finding>) -> Done {
    if let Some(error) = would_refuse(located, facts)? {
        findings.push(refused(&error));
        return Ok(());
    }
    findings.push(Finding {
        stops: "others' use",
        why: "whoever opens it has it alone; nobody has it now".into(),
        clause: Some(Clause::X1),
        next: "open it for short, or make the next one with concurrency=shared".into(),
    });
    if facts.kind == EntryKind::Collection && !args.quick {
        findings.push(Finding {
            stops: "the search for damage",
            why: "it was not read: that would keep everybody else out".into(),
            clause: Some(Clause::X1),
            next: format!(
                "when nobody needs it: iov cat {} > /dev/null; once sealed it is read without a hold",
                located.address.quoted()
            ),
        });
    }
    Ok(())
}

/// Why an open would fail, without opening anything.
fn would_refuse(located: &Located, facts: &Facts) -> Done<Option<Error>> {
    let open = |uuid| {
        let (out, controls) = (located.ws.pending(facts.kind), Default::default());
        Op::Open { out, parent: None, which: Which::Uuid(uuid), controls }.into()
    };
    // A rollback batch that fails has no effect, on holds neither (B3), and names the operation that has failed: the
    // open, or else that of something that is not there.
    let attr = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
    let ops = vec![open(facts.uuid), open(seam::new_uuid())];
    let statuses = ioverbs::run_batch(located.ws.session(), attr, ops)?;
    // Undone is what would have been granted.
    let open = statuses.into_iter().next().filter(|open| open.state != OpState::Undone);
    Ok(open.and_then(|open| open.error))
}

fn refused(error: &Error) -> Finding {
    let next = match error.kind() {
        Kind::Busy => {
            "wait until its holder closes it, or until 30 s after its holder has died; stat, ls and find work meanwhile"
        }
        _ => advice(error),
    };
    let (why, clause) = (error.detail().to_owned(), error.clause());
    Finding { stops: "every use", why, clause, next: next.to_owned() }
}

/// Whether its bytes are those that were written, as far as there are checksums.
fn damage(ctx: &mut Ctx, c: &Collection, findings: &mut Vec<Finding>) -> Done {
    for error in check::damage(ctx, c)? {
        findings.push(Finding {
            stops: "reads there",
            why: error.detail().to_owned(),
            clause: error.clause(),
            next: advice(&error).to_owned(),
        });
    }
    Ok(())
}

/// How many locks are shown.
const LOCKS: usize = 20;

fn locks(c: &Collection, findings: &mut Vec<Finding>) -> Done {
    let mut offset = 0;
    for _ in 0..LOCKS {
        let range = Range { offset, len: 0 };
        let lock = LockSpec { exclusive: true, try_only: true, range, owner: 0, lease_ns: limits::LEASE_NS };
        let found = match ioverbs::run(c.session(), Op::LockQuery { c: c.clone(), lock }) {
            Err(e) if e.kind() == Kind::NotFound => break,
            status => match status?.output {
                Output::Lock(found) => found,
                _ => break,
            },
        };
        let what = if found.exclusive { "an exclusive" } else { "a shared" };
        let end = match found.range.len {
            0 => "the end".to_owned(),
            _ => found.range.end().to_string(),
        };
        findings.push(Finding {
            stops: "those who lock",
            why: format!("owner {} has {what} lock on bytes {}..{end}", found.owner, found.range.offset),
            clause: Some(Clause::O11),
            next: "wait until it is given back, or its owner's lease ends; reads and writes do not look at locks"
                .into(),
        });
        match found.range.len {
            0 => break,
            _ if found.range.end() <= offset => break,
            _ => offset = found.range.end(),
        }
    }
    Ok(())
}

fn print(ctx: &mut Ctx, address: &Address, findings: &[Finding]) -> Done {
    if ctx.global.json {
        let mut list = JsonList::default();
        for f in findings {
            let clause = f.clause.map(Clause::id);
            list.item(&mut ctx.out, &json!({ "stops": f.stops, "why": f.why, "clause": clause, "next": f.next }))?;
        }
        return list.end(&mut ctx.out);
    }
    if findings.is_empty() {
        return ctx.out.line(format_args!("{address}: nothing stands in the way"));
    }
    for f in findings {
        let clause = f.clause.map_or(String::new(), |c| format!(" ({c})"));
        ctx.out.line(format_args!("stops {}: {}{clause}", f.stops, printable(f.why.as_bytes())))?;
        ctx.out.line(format_args!("  next: {}", f.next))?;
    }
    Ok(())
}
