//! Which facts a commit changes, for processes of this host that remember them ([`iov_store::change_page`]).

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use iov_store::{ChangePage, Fact};
use iov_types::Uuid;

use crate::{Service, state::Touch};

/// Facts that are being changed until this is dropped.
pub(crate) struct Changing {
    page: Arc<ChangePage>,
    facts: Vec<Fact>,
}

impl Changing {
    /// From now on nobody relies on any of these.
    pub(crate) fn begin(page: &Arc<ChangePage>, facts: Vec<Fact>) -> Changing {
        facts.iter().for_each(|fact| page.begin(*fact));
        Changing { page: page.clone(), facts }
    }

    /// Whether this is one of them.
    pub(crate) fn has(&self, fact: Fact) -> bool {
        self.facts.contains(&fact)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.facts.iter().for_each(|fact| self.page.end(*fact));
    }
}

fn uuid_at(key: &[u8], at: usize) -> Option<Uuid> {
    key.get(at..at + 16)?.try_into().ok().map(Uuid)
}

/// What these writes to the store, and these notes of when names were changed, change for who looks.
pub(crate) fn facts_of(writes: &[(Vec<u8>, Option<Bytes>)], touched: &[Touch]) -> Vec<Fact> {
    let mut facts: Vec<Fact> = touched.iter().map(|touch| Fact::Itself(touch.group)).collect();
    for (key, _) in writes {
        match key.first() {
            // A record, or the bytes beside it: workspace and collection.
            Some(b'R' | b'C') => facts.extend(uuid_at(key, 17).map(Fact::Itself)),
            // A name: its group, which knows how many it has.
            Some(b'N') => {
                facts.extend(uuid_at(key, 1).into_iter().flat_map(|group| [Fact::Names(group), Fact::Itself(group)]));
            }
            // A workspace: what is in it follows its rights and may have gone with it.
            Some(b'W' | b'w') => facts.push(Fact::All),
            // What it uses, indexes, lists of what is to be done: nobody remembers them.
            _ => {}
        }
    }
    facts.sort_unstable();
    facts.dedup();
    facts
}

impl Service {
    /// From now on tells what changes in this page. To be called before anybody is served. What clients of an earlier catalog that may
    /// still come back have open is not known before they have: until then nobody relies on anything.
    pub fn tell_changes(&self, page: ChangePage) {
        let page = Arc::new(page);
        if self.core.grace_ns.load(Ordering::Relaxed) != 0 {
            *self.core.in_doubt() = Some(Changing::begin(&page, vec![Fact::All]));
        }
        self.core.shared_mut().opens.tell_changes(page.clone());
        page.ready();
    }

    /// From now on nobody relies on these facts, until what this returns is dropped.
    pub(crate) fn changing(&self, facts: impl FnOnce() -> Vec<Fact>) -> Option<Changing> {
        let page = self.core.shared().opens.changes().cloned();
        page.map(|page| Changing::begin(&page, facts()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
