//! Why a handle has the controls it has, and what follows from them, as a tree for people and programs.

mod follows;
mod tree;

use iov_types::{Clause, Controls, Effective};

pub use tree::Tree;

use crate::{Contract, Control};

/// Who decided a control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The call asked for just this.
    Asked,
    /// The workspace's defaults.
    Workspace,
    /// The collection or handle that the call started from.
    Collection,
    /// The default of the clauses.
    Default,
    /// The call asked for less, or for no more than part of it.
    Stronger,
}

impl Origin {
    /// As explanations write it.
    pub const fn text(self) -> &'static str {
        match self {
            Origin::Asked => "asked",
            Origin::Workspace => "workspace",
            Origin::Collection => "collection",
            Origin::Default => "default",
            Origin::Stronger => "given stronger",
        }
    }
}

/// What the controls were resolved from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What the call asked for.
    pub asked: &'a Controls,
    /// The workspace's defaults; looked at for a create only.
    pub workspace: &'a Controls,
    /// What an open or a batch started from; `None` for a create.
    pub collection: Option<&'a Effective>,
}

/// One control explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Which one.
    pub control: Control,
    /// Its value as text.
    pub value: String,
    /// Who decided it.
    pub origin: Origin,
    /// The clause that says what it promises.
    pub clause: Clause,
    /// What follows from it here.
    pub follows: String,
}

/// Explains every control, in order.
pub fn lines(contract: &Contract, sources: &Sources<'_>) -> Vec<Line> {
    let line = |control: &Control| {
        let (clause, follows) = follows::follows(*control, contract);
        Line {
            control: *control,
            value: control.value(&contract.effective),
            origin: origin(*control, &contract.effective, sources),
            clause,
            follows,
        }
    };
    Control::ALL.iter().map(line).collect()
}

/// The whole explanation: `controls` line by line, and the `contract`. A caller adds what it knows, such as the steps of
/// a plan, with [`Tree::with`].
pub fn explain(contract: &Contract, sources: &Sources<'_>) -> Tree {
    let controls = lines(contract, sources).into_iter().map(|line| {
        Tree::map()
            .with("control", line.control.name())
            .with("value", line.value)
            .with("from", line.origin.text())
            .with("clause", line.clause.id())
            .with("follows", line.follows)
    });
    let facts = Tree::map()
        .with("publish", follows::publish(contract.publish))
        .with("staged", contract.staged)
        .with("unit", contract.unit)
        .with("sync", follows::sync(contract.sync))
        .with("durability", contract.durability.text())
        .with("exclusive", contract.exclusive)
        .with("append_only", contract.append_only)
        .with("immutable", contract.immutable)
        .with("max_size", contract.max_size)
        .with("once", contract.once)
        .with("drain_ns", contract.drain_ns)
        .with("read_ahead", contract.read_ahead)
        .with("cacheable", contract.cacheable);
    Tree::map().with("controls", Tree::List(controls.collect())).with("contract", facts)
}

fn origin(control: Control, effective: &Effective, sources: &Sources<'_>) -> Origin {
    if control.is_set(sources.asked) {
        return if holds(control, sources.asked, effective) { Origin::Asked } else { Origin::Stronger };
    }
    if sources.collection.is_some() {
        return Origin::Collection;
    }
    let by_workspace = control.is_set(sources.workspace) && holds(control, sources.workspace, effective);
    if by_workspace { Origin::Workspace } else { Origin::Default }
}

/// Whether what `c` sets of a control is what holds. A parameter that it leaves open may have any value.
fn holds(control: Control, c: &Controls, effective: &Effective) -> bool {
    let mut filled = Controls::default();
    control.copy(c, &mut filled);
    let held = control.only(effective);
    crate::control::fill(&mut filled, &held);
    filled == held
}

#[cfg(test)]
mod tests;
