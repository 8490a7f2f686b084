//! A catalog that has its session know where things lie: before an open is told, the pattern of its place and the targets in
//! it are known. So each pattern is asked for once, and no read or write asks anything (ARCHITECTURE, layout cache).

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use iov_store::{
    Answer, Backend, Catalog, CatalogCapability, ChangeView, OnAnswer, OnPublished, OpCx, Publisher, Route, Spread, ask,
};
use iov_types::{
    Error, Place, Result, StoreMap, Uuid,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use crate::{
    direct::DirectBackend,
    link::{Link, lock},
    reach,
    remote::{RemoteBackend, RemoteCatalog},
};

/// The catalog behind a link, and the targets of its store as one.
pub struct Mapped(Arc<Inner>);

struct Inner {
    catalog: RemoteCatalog,
    spread: Spread,
    first: Arc<dyn Backend>,
    /// Bytes may be moved past the daemons.
    direct: bool,
    /// Where the targets are that there are links to: addresses, and the directory on this host.
    linked: Mutex<Vec<(u32, Vec<String>, String)>>,
}

/// What an answer says of a place that is not known.
fn unknown(spread: &Spread, answer: &Answer) -> Option<u32> {
    let replies = answer.as_ref().ok()?;
    let place = |reply: &Result<CatalogReply>| match reply {
        Ok(CatalogReply::Opened(opened)) => Some(opened.layout.place),
        _ => None,
    };
    let unknown = |place: &Place| !place.is_first() && spread.capability_at(*place).is_err();
    replies.iter().filter_map(place).find(unknown).map(Place::pattern)
}

impl Mapped {
    /// The catalog behind a link, and all of the store's targets, of which `first` is the first; waits for the list of them if
    /// there are several.
    pub fn open(link: Arc<Link>, first: Arc<dyn Backend>, direct: bool, cx: &OpCx) -> Result<(Mapped, Spread)> {
        let spread = Spread::new(first.clone(), link.targets().clone());
        let catalog = RemoteCatalog(link);
        let inner = Arc::new(Inner { catalog, spread: spread.clone(), first, direct, linked: Mutex::default() });
        if inner.catalog.capability().targets.targets > 1 {
            let answer = ask(&inner.catalog, cx, vec![CatalogOp::Map { from: 1 }], Submission::Each)?;
            inner.learn(answer)?;
        }
        let publisher = Arc::downgrade(&inner);
        spread.publish_by(Box::new(ByCatalog(publisher)));
        Ok((Mapped(inner), spread))
    }
}

impl Inner {
    fn learn(&self, replies: Vec<Result<CatalogReply>>) -> Result<()> {
        for reply in replies {
            if let CatalogReply::Map(map) = reply? {
                self.take(*map);
            }
        }
        Ok(())
    }

    fn take(&self, map: StoreMap) {
        let link = &self.catalog.0;
        let mut linked = lock(&self.linked);
        for target in map.targets {
            let known = linked.iter().find(|(number, ..)| *number == target.number);
            if known.is_some_and(|(_, addresses, local)| (addresses, local) == (&target.addresses, &target.local)) {
                continue;
            }
            let backend: Arc<dyn Backend> = if target.number == 0 && target.addresses.is_empty() {
                self.first.clone()
            } else {
                // One that cannot be reached from here is missed when something lies on it.
                let Ok(to) = link.to_target(&target, self.direct) else { continue };
                match reach::is_local(&to.address) {
                    true => Arc::new(DirectBackend::new(to, self.direct)),
                    false => Arc::new(RemoteBackend(to)),
                }
            };
            self.spread.add_target(target.number, backend, target.capability);
            linked.retain(|(number, ..)| *number != target.number);
            linked.push((target.number, target.addresses, target.local));
        }
        for pattern in map.patterns {
            self.spread.add_pattern(pattern.number, pattern.targets);
        }
    }

    /// Hands on an answer once all that it names is known.
    fn tell(self: &Arc<Inner>, cx: &OpCx, answer: Answer, done: OnAnswer) {
        let Some(pattern) = unknown(&self.spread, &answer) else { return done(answer) };
        let (inner, again) = (self.clone(), cx.clone());
        let learned = move |map: Answer| {
            // What stays unknown is told by whoever needs it.
            let _ = map.and_then(|replies| inner.learn(replies));
            match unknown(&inner.spread, &answer) {
                Some(other) if other != pattern => inner.tell(&again, answer, done),
                _ => done(answer),
            }
        };
        self.catalog.submit(cx, vec![CatalogOp::Map { from: pattern }], Submission::Each, Box::new(learned));
    }
}

impl Catalog for Mapped {
    fn capability(&self) -> &CatalogCapability {
        self.0.catalog.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let opens = |op: &CatalogOp| matches!(op, CatalogOp::Create { .. } | CatalogOp::Open { .. });
        if !ops.iter().any(opens) {
            return self.0.catalog.submit(cx, ops, how, done);
        }
        let (inner, with) = (self.0.clone(), cx.clone());
        self.0.catalog.submit(cx, ops, how, Box::new(move |answer| inner.tell(&with, answer, done)));
    }

    fn drive(&self, timeout_ns: i64) -> bool {
        self.0.catalog.drive(timeout_ns)
    }

    fn connection(&self) -> u64 {
        self.0.catalog.connection()
    }

    fn changes(&self) -> Option<Arc<ChangeView>> {
        self.0.catalog.changes()
    }

    fn watch(&self, set: &OwnedFd) {
        self.0.catalog.watch(set);
    }

    fn routes(&self, cx: &OpCx) -> Vec<Route> {
        self.0.catalog.routes(cx)
    }
}

/// Has the catalog publish what is staged at several targets.
struct ByCatalog(std::sync::Weak<Inner>);

impl Publisher for ByCatalog {
    fn publish(&self, cx: &OpCx, stage: Uuid, staged: Staged, done: OnPublished) {
        let Some(inner) = self.0.upgrade() else {
            return done(Err(Error::unavailable("the session has ended")));
        };
        let how = Submission::All { batch: stage, remember: false, staged: vec![staged] };
        let answered = move |answer: Answer| {
            let failed = answer.map(|replies| replies.into_iter().find_map(Result::err));
            done(match failed {
                Err(e) | Ok(Some(e)) => Err(e),
                Ok(None) => Ok(()),
            });
        };
        inner.catalog.submit(cx, Vec::new(), how, Box::new(answered));
    }
}
