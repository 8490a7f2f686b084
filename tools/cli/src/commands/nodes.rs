//! `iov nodes`: the daemons that a store consists of, and the machines that they run on.

use ioverbs::{Reach, Target};
use serde_json::{Value, json};

use crate::{ctx::Ctx, failure::Done, quantity};

/// List the daemons of the store: where each is, what it serves, and whether it is there
///
/// The first has the catalog: what there is, and where it lies. Others have joined it with targets (iov up --join).
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

/// A daemon, as its targets tell of it.
struct Node<'a> {
    addresses: &'a [String],
    targets: Vec<&'a Target>,
}

impl Node<'_> {
    fn first(&self) -> &Target {
        self.targets[0]
    }

    /// It answers if any of its targets does.
    fn reach(&self) -> Reach {
        self.targets.iter().map(|target| target.reach).min().unwrap_or(Reach::Offline)
    }

    fn sum(&self, of: impl Fn(&Target) -> u64) -> Option<u64> {
        // One without bounds of its own has what others leave.
        self.targets
            .iter()
            .all(|target| target.capacity > 0)
            .then(|| self.targets.iter().map(|target| of(target)).sum())
    }
}

fn nodes(targets: &[Target]) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    for target in targets {
        let same = |node: &&mut Node<'_>| node.addresses == target.addresses && node.first().host == target.host;
        match nodes.iter_mut().find(same) {
            Some(node) => node.targets.push(target),
            None => nodes.push(Node { addresses: &target.addresses, targets: vec![target] }),
        }
    }
    nodes
}

fn as_json(node: &Node<'_>) -> Value {
    let first = node.first();
    let numbers: Vec<u32> = node.targets.iter().map(|target| target.number).collect();
    json!({
        "host": first.host, "domain": first.domain, "addresses": node.addresses, "catalog": node.addresses.is_empty(),
        "targets": numbers, "capacity": node.sum(|t| t.capacity), "free": node.sum(|t| t.free),
        "reach": node.reach().text(),
    })
}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let session = ctx.session()?;
    let map = super::targets::of(&session)?;
    let nodes = nodes(&map.targets);
    if ctx.global.json {
        let all: Vec<Value> = nodes.iter().map(as_json).collect();
        return ctx.out.line(json!({ "nodes": all }));
    }
    if nodes.is_empty() {
        return ctx.out.line("one, this process");
    }
    ctx.out.line(format_args!(
        "{:<20} {:<12} {:<8} {:<12} {:>10} {:>10}  {:<16} {}",
        "host", "domain", "role", "targets", "capacity", "free", "state", "where"
    ))?;
    for node in &nodes {
        let numbers: Vec<String> = node.targets.iter().map(|target| target.number.to_string()).collect();
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), quantity::human);
        let of_catalog = node.addresses.is_empty();
        ctx.out.line(format_args!(
            "{:<20} {:<12} {:<8} {:<12} {:>10} {:>10}  {:<16} {}",
            node.first().host,
            node.first().domain,
            if of_catalog { "catalog" } else { "targets" },
            numbers.join(","),
            size(node.sum(|t| t.capacity)),
            size(node.sum(|t| t.free)),
            node.reach().text(),
            if of_catalog { session.url().to_owned() } else { node.addresses.join(",") },
        ))?;
    }
    Ok(())
}
