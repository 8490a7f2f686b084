//! What became of a change of names that was not answered, as the store's daemon was killed meanwhile: it is looked at what the names stand for once there is another
//! one. What was last changed before it was asked for has not been touched by it, so that it can be asked for again; what has gone, or come, since then was.
//!
//! Who removes a name that another one removes in the same moment is told that it is removed, as the other one is: which of the two it was nobody knows by then.
//! Nor can anybody tell where others have changed the same names in the same moment, nor by the clock of another host: then it stays an error.

use ioverbs::{Kind as Failure, Name, Op, Outcome as Took, Result, Stat, Status, Which, seam};

use crate::{FileSystem, Node, Outcome, fs::stat_of};

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Became {
    /// It was done.
    Done,
    /// It was not.
    Nothing,
    /// One or the other.
    Unsure,
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    /// Nothing.
    Free,
    /// What nobody has changed since.
    AsBefore,
    /// What somebody has changed since, or made.
    Changed,
}

impl FileSystem {
    /// Does what must not be done twice: again where it is known that nothing of it has arrived, or is found out (`became`, given the time when it was first asked for).
    /// `None`: it was done, by an attempt that was not answered.
    pub(crate) fn once_for_sure<T>(
        &self,
        verb: &str,
        mut work: impl FnMut() -> Result<T>,
        became: &dyn Fn(i64) -> Result<Became>,
    ) -> Outcome<Option<T>> {
        let (begun_ns, is_here) = (seam::now_ns(), self.since().is_some());
        let mut unsure = None;
        self.again(verb, || {
            if let Some(e) = unsure.take() {
                match became(begun_ns) {
                    // There is still none that could be asked.
                    Err(again) if again.kind() == Failure::Unavailable => {
                        unsure = Some(e);
                        return Err(again);
                    }
                    Ok(Became::Done) => return Ok(Ok(None)),
                    Ok(Became::Nothing) => {}
                    Ok(Became::Unsure) | Err(_) => return Ok(Err(e)),
                }
            }
            match work() {
                Err(e) if e.outcome() != Took::NotApplied && e.kind() == Failure::Unavailable && is_here => {
                    unsure = Some(e.clone());
                    Err(e)
                }
                Err(e) if e.outcome() != Took::NotApplied => Ok(Err(e)),
                other => other.map(|done| Ok(Some(done))),
            }
        })?
        .map_err(|e| self.errno(verb, &e))
    }

    /// What a name stands for now, as compared with that time.
    pub(crate) fn stands(&self, parent: &Node, name: &Name, begun_ns: i64) -> Result<Stands> {
        let group = parent.group().map_err(|_| ioverbs::Error::not_found("it is no directory"))?;
        let (w, which) = (self.workspace().clone(), Which::Name(name.clone()));
        let look = Op::Look { w, parent: Some(group), which, ahead: 0, tell: 0 };
        match ioverbs::run(self.session(), look) {
            Err(e) if e.kind() == Failure::NotFound => Ok(Stands::Free),
            looked => Ok(standing(&looked?, begun_ns)),
        }
    }
}

fn standing(looked: &Status, begun_ns: i64) -> Stands {
    let before = |stat: &Stat| stat.changed_ns.max(stat.ctime_ns) < begun_ns;
    if stat_of(Some(looked)).is_ok_and(before) { Stands::AsBefore } else { Stands::Changed }
}
