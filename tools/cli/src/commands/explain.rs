//! `iov explain`: what controls are granted, where from, and the plan that they lead to.

use ioverbs::{
    BatchAttr, Collection, Controls, Effective, EntryKind, Error, Lent, Op, Persistence, Refusal, Result, Session,
    explain, explain::Tree, resolve,
};
use serde_json::{Value as Json, json};

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Failure, Next},
    locate::{Located, What},
    options::ControlArgs,
    quantity,
};

/// Show what is promised, and the plan of operations
///
/// For each control: its value, where that comes from, the clause behind it and what follows. Of a collection: what an open gets. Of a workspace, a group or a name that is free: what a create gets there. With -c
/// alone: what a create in this store gets. A promise that cannot be given is refused, with its clause and the nearest
/// offer; then the exit code is 69.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS, WS/GROUP or WS/NAME
    #[arg(value_parser = Address::parser(), required_unless_present = "controls")]
    address: Option<Address>,

    /// Operations to plan, of a collection that is there: write:SIZE[@OFFSET], read:SIZE[@OFFSET], append:SIZE,
    /// truncate:SIZE, commit, persist, seal, close
    #[arg(long = "op", value_name = "OPERATION", requires = "address")]
    ops: Vec<String>,

    #[command(flatten)]
    controls: ControlArgs,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let asked = args.controls.read()?;
    let steps = args.ops.iter().map(|text| Step::parse(text)).collect::<Result<Vec<_>>>()?;
    let located = args.address.as_ref().map(|a| ctx.locate(a)).transpose()?;
    let session = ctx.session()?;
    let there = match located.as_ref().map(|l| &l.what) {
        Some(What::Found(facts)) if facts.kind == EntryKind::Collection => Some(facts.clone()),
        _ => None,
    };
    let granted = match &there {
        Some(facts) => {
            let stored = effective(&session, &facts.read_controls()?)?;
            let granted = resolve::open(&stored, &asked, session.capability());
            granted.map(|granted| grant(&session, "an open", &granted, &asked, &Controls::default(), Some(&stored)))
        }
        None => {
            let ws = located.as_ref().map(|l| &l.ws);
            let defaults = ws.map(|ws| ws.defaults()).unwrap_or_default();
            let granted = session.check_controls(ws, &asked);
            granted.map(|granted| grant(&session, "a create", &granted, &asked, &defaults, None))
        }
    };
    let tree = match granted {
        Ok(tree) => tree?,
        Err(refusal) => return refused(ctx, args, refusal),
    };
    let plan = match (&there, &located, steps.is_empty()) {
        (_, _, true) => None,
        (Some(_), Some(located), false) => Some(plan(ctx, located, &asked, &steps)?),
        _ => {
            let error = Error::invalid("--op plans operations of a collection, and there is none of this name");
            return Err(error).next(|| "iov put stores one; without --op the promises of a create are shown".into());
        }
    };
    print(ctx, args, &session, tree, plan)
}

/// Stored controls are complete: nothing is left to be decided but what may be asked anew at each open.
fn effective(session: &Session, stored: &Controls) -> std::result::Result<Effective, Refusal> {
    resolve::create(&Controls::default(), stored, session.capability())
}

fn grant(
    session: &Session,
    what: &str,
    granted: &Effective,
    asked: &Controls,
    workspace: &Controls,
    collection: Option<&Effective>,
) -> Result<Tree> {
    let contract = iov_semantics::admit(granted, None, session.capability())?;
    let sources = explain::Sources { asked, workspace, collection };
    let tree = explain::explain(&contract, &sources);
    let text = ioverbs::text::format(&Controls::from(granted));
    Ok(Tree::map()
        .with("what", what)
        .with("store", session.url())
        .with("medium", session.capability().medium)
        .with("granted", text)
        .with("controls", tree.get("controls").cloned().unwrap_or(Tree::map()))
        .with("contract", tree.get("contract").cloned().unwrap_or(Tree::map())))
}

fn refused(ctx: &mut Ctx, args: &Args, refusal: Refusal) -> Done {
    if ctx.global.json {
        let report = json!({
            "asked": args.controls.controls.join(","),
            "refused": refusal.reason(),
            "clause": refusal.error.clause().map(|c| c.id()),
            "offer": refusal.offer_text(),
        });
        ctx.out.line(report)?;
    }
    Err(Failure::from(refusal))
}

fn print(ctx: &mut Ctx, args: &Args, session: &Session, tree: Tree, plan: Option<String>) -> Done {
    let read = |text: &str| {
        serde_json::from_str::<Json>(text).map_err(|e| Error::internal(format!("a plan that is no JSON: {e}")))
    };
    let plan = plan.as_deref().map(read).transpose()?;
    if ctx.global.json {
        let mut report = read(&tree.to_json())?;
        if let (Json::Object(report), Some(plan)) = (&mut report, plan) {
            report.insert("plan".into(), plan);
        }
        return ctx.out.line(report);
    }
    let address = args.address.as_ref().map_or_else(|| session.url().to_owned(), Address::to_string);
    let word = |key: &str| match tree.get(key) {
        Some(Tree::Text(text)) => text.clone(),
        _ => String::new(),
    };
    ctx.out.line(format_args!("{address}: what {} gets (medium: {})\n", word("what"), word("medium")))?;
    if let Some(controls) = tree.get("controls") {
        ctx.out.line(controls)?;
    }
    if session.capability().durability < Persistence::Durable {
        ctx.out.line("The medium of this store does not survive power loss.")?;
    }
    if let Some(Json::Object(plan)) = plan {
        ctx.out.line("plan")?;
        for (i, wave) in plan.get("waves").and_then(Json::as_array).into_iter().flatten().enumerate() {
            ctx.out.line(format_args!("  {}. to {}", i + 1, wave["to"].as_str().unwrap_or("")))?;
            for op in wave["operations"].as_array().into_iter().flatten() {
                let bytes = op["bytes"]
                    .as_u64()
                    .filter(|n| *n > 0)
                    .map_or(String::new(), |n| format!(" {}", quantity::human(n)));
                let steps: Vec<&str> = op["steps"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                ctx.out.line(format_args!(
                    "     {}{bytes}: {}",
                    op["verb"].as_str().unwrap_or(""),
                    steps.join("; ")
                ))?;
            }
        }
    }
    Ok(())
}

/// An operation to plan.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Write(u64, u64),
    Read(u64, u64),
    Append(u64),
    Truncate(u64),
    Commit,
    Persist,
    Seal,
    Close,
}

/// Memory that a plan is made with is never touched, but it must be there.
const LARGEST: u64 = 1 << 34;

impl Step {
    fn parse(text: &str) -> Result<Step> {
        let wrong = || {
            Error::invalid(format!(
                "{text:?} is no operation: write:SIZE[@OFFSET], read:SIZE[@OFFSET], append:SIZE, truncate:SIZE, commit, \
                 persist, seal or close"
            ))
        };
        let (verb, rest) = text.split_once(':').map_or((text, None), |(verb, rest)| (verb, Some(rest)));
        let size = |rest: &str| match quantity::read_size(rest)? {
            n if n > LARGEST => Err(Error::too_big(format!("{text:?}: a request of more than 16 GiB; split it"))),
            n => Ok(n),
        };
        let placed = |rest: &str| match rest.split_once('@') {
            Some((len, offset)) => Ok::<_, Error>((size(len)?, quantity::read_size(offset)?)),
            None => Ok((size(rest)?, 0)),
        };
        Ok(match (verb, rest) {
            ("write", Some(rest)) => placed(rest).map(|(len, at)| Step::Write(len, at))?,
            ("read", Some(rest)) => placed(rest).map(|(len, at)| Step::Read(len, at))?,
            ("append", Some(rest)) => Step::Append(size(rest)?),
            ("truncate", Some(rest)) => Step::Truncate(quantity::read_size(rest)?),
            ("commit", None) => Step::Commit,
            ("persist", None) => Step::Persist,
            ("seal", None) => Step::Seal,
            ("close", None) => Step::Close,
            _ => return Err(wrong()),
        })
    }

    fn len(self) -> usize {
        match self {
            Step::Write(len, _) | Step::Read(len, _) | Step::Append(len) => len as usize,
            _ => 0,
        }
    }

    fn lend<'a>(self, c: &Collection, buf: &'a mut [u8]) -> Lent<'a> {
        let c = c.clone();
        match self {
            Step::Write(_, offset) => Lent::Write { c, offset, data: buf },
            Step::Read(_, offset) => Lent::Read { c, offset, buf },
            Step::Append(_) => Lent::Append { c, data: buf },
            Step::Truncate(size) => Op::Truncate { c, size }.into(),
            Step::Commit => Op::Commit { c }.into(),
            Step::Persist => Op::Persist { c }.into(),
            Step::Seal => Op::Seal { c }.into(),
            Step::Close => Op::Close { c }.into(),
        }
    }
}

fn plan(ctx: &mut Ctx, located: &Located, asked: &Controls, steps: &[Step]) -> Done<String> {
    let c = located.spot(ctx)?.open(EntryKind::Collection).map_err(|e| e.about(&located.address))?;
    let mut buffers: Vec<Vec<u8>> = steps.iter().map(|step| vec![0; step.len()]).collect();
    let ops = steps.iter().zip(&mut buffers).map(|(step, buf)| step.lend(&c, buf)).collect();
    let controls = (*asked != Controls::default()).then(|| asked.clone());
    let attr = BatchAttr { controls, ..BatchAttr::default() };
    let plan = ioverbs::explain_batch(located.ws.session(), attr, ops)?;
    ioverbs::close(&c)?;
    Ok(plan)
}
