//! The order in which a batch may run: a state machine without I/O.
//!
//! Operations that share a token (the same bytes, name or key) keep their batch order (O9); all others are free, and the
//! plan uses that freedom to make few, large *waves*: operations of one class that go to the catalog or to targets
//! in one submission. Barriers and the error policy cut the batch into groups (B2).

use std::collections::HashMap;

use iov_types::OnError;

/// Which side an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Facts only: many go in one submission, which keeps their order.
    Catalog,
    /// Bytes only.
    Data,
    /// Bytes first (publish, sync), then facts: commit, persist, close.
    DataThenCatalog,
    /// May wait for others: goes alone, so that nothing else waits with it.
    Alone,
}

/// What the plan needs to know of an operation.
#[derive(Clone, Debug)]
pub struct PlanOp {
    /// Which side it needs.
    pub class: Class,
    /// What it touches: hashed tokens, and whether it changes them. A collision only orders more than needed.
    pub uses: Vec<(u64, bool)>,
    /// Must not share a wave with an operation it depends on: it needs that one's result, or touches two objects.
    pub strict: bool,
}

/// Operations to run together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wave {
    /// Their class.
    pub class: Class,
    /// Their places in the batch, ascending.
    pub ops: Vec<usize>,
    /// Whether they run one after the other until one fails; the rest is then skipped (B2).
    pub until_failure: bool,
}

/// How far beyond blocked operations a wave looks for more: keeps planning linear in practice.
const LOOK_AHEAD: usize = 4096;

/// The plan of one batch under `continue` or `stop`. A rollback batch has no waves: it is staged as a whole.
#[derive(Debug)]
pub struct Plan {
    ops: Vec<PlanOp>,
    /// Group of each operation, ascending.
    groups: Vec<usize>,
    stop: bool,
    each_is_group: bool,
    started: Vec<bool>,
    first: usize,
    failed_group: Option<usize>,
    running: usize,
}

impl Plan {
    /// A plan. `barriers` holds, ascending, the index of the first operation behind each barrier.
    pub fn new(ops: Vec<PlanOp>, barriers: &[usize], policy: OnError) -> Plan {
        let stop = policy != OnError::Continue;
        let each_is_group = stop && barriers.is_empty();
        let mut passed = 0;
        let groups = (0..ops.len())
            .map(|i| {
                while barriers.get(passed).is_some_and(|b| *b <= i) {
                    passed += 1;
                }
                if each_is_group { i } else { passed }
            })
            .collect();
        let started = vec![false; ops.len()];
        Plan { ops, groups, stop, each_is_group, started, first: 0, failed_group: None, running: 0 }
    }

    /// The next operations to run, once all of the last wave have ended; `None` when nothing is left to run.
    pub fn next_wave(&mut self) -> Option<Wave> {
        assert_eq!(self.running, 0, "the last wave has not ended");
        while self.started.get(self.first) == Some(&true) {
            self.first += 1;
        }
        if self.first == self.ops.len() || self.failed_group.is_some_and(|g| self.groups[self.first] > g) {
            return None;
        }
        let wave = if self.each_is_group { self.run_of_one_class() } else { self.free_wave() };
        for &op in &wave.ops {
            self.started[op] = true;
        }
        self.running = wave.ops.len();
        Some(wave)
    }

    /// Tells that an operation of the present wave has ended.
    pub fn ended(&mut self, op: usize, ok: bool) {
        self.running -= 1;
        if !ok && self.stop {
            let group = self.groups[op];
            self.failed_group = Some(self.failed_group.map_or(group, |g| g.min(group)));
        }
    }

    /// Operations that never ran, after [`Plan::next_wave`] has returned `None`: they are skipped.
    pub fn skipped(&self) -> impl Iterator<Item = usize> + '_ {
        self.started.iter().enumerate().filter(|(_, started)| !**started).map(|(i, _)| i)
    }

    /// `stop` without barriers: neighbours of one class in one submission that itself stops at a failure.
    fn run_of_one_class(&self) -> Wave {
        let class = self.ops[self.first].class;
        let alone = class == Class::Alone || class == Class::DataThenCatalog;
        let ops: Vec<usize> = (self.first..self.ops.len())
            .enumerate()
            .take_while(|(n, i)| *n == 0 || (!alone && self.ops[*i].class == class && !self.ops[*i].strict))
            .map(|(_, i)| i)
            .collect();
        Wave { class, ops, until_failure: true }
    }

    fn free_wave(&self) -> Wave {
        let class = self.ops[self.first].class;
        let group = self.groups[self.first];
        let mut wave = Vec::new();
        // Tokens of operations that stay behind, and (for strict ones) of those that go.
        let mut blocked: HashMap<u64, bool> = HashMap::new();
        let mut going: HashMap<u64, bool> = HashMap::new();
        let conflicts = |with: &HashMap<u64, bool>, op: &PlanOp| {
            op.uses.iter().any(|(token, write)| with.get(token).is_some_and(|w| *w || *write))
        };
        let mut behind = 0;
        for i in self.first..self.ops.len() {
            if self.groups[i] != group || behind > LOOK_AHEAD {
                break;
            }
            if self.started[i] {
                continue;
            }
            let op = &self.ops[i];
            let goes = op.class == class
                && !conflicts(&blocked, op)
                && (!op.strict || !conflicts(&going, op))
                && (class != Class::Alone || wave.is_empty());
            let into = if goes { &mut going } else { &mut blocked };
            for (token, write) in &op.uses {
                *into.entry(*token).or_default() |= *write;
            }
            if goes {
                wave.push(i);
            } else {
                behind += 1;
            }
        }
        Wave { class, ops: wave, until_failure: false }
    }
}

#[cfg(test)]
mod tests;
