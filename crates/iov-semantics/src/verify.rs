//! Whether what happened is what was promised.

use iov_types::{Clause, Error, Evidence, Outcome, Persistence, Result};

use crate::{Contract, SyncPoint};

/// Checks the evidence of changes and syncs when their request completes. See [`verify_at`].
pub fn verify(contract: &Contract, evidence: &[Evidence]) -> Result<()> {
    verify_at(contract, SyncPoint::Request, evidence)
}

/// Checks, at a point, the evidence of what is to have reached its level there: of changes, and of the syncs that stand
/// for earlier ones. Of a publication the publishing counts, not the changes that it collects.
///
/// `point` is what is about to complete: a request, a batch, a close, or an explicit persist. Evidence that names no level
/// counts as `volatile`: a target is not trusted to have done more than it says. A shortfall is a defect of the target,
/// and has taken effect all the same.
pub fn verify_at(contract: &Contract, point: SyncPoint, evidence: &[Evidence]) -> Result<()> {
    let demanded = demanded_at(contract, point);
    for (index, evidence) in evidence.iter().enumerate() {
        let reached = evidence.durability.unwrap_or(Persistence::Volatile);
        if reached < demanded {
            let detail = format!(
                "evidence {index}: the change survives what {} promises, but {} was granted; \
                 persist it again, or write it elsewhere",
                reached.text(),
                demanded.text()
            );
            return Err(Error::internal(detail).with_clause(Clause::P5).with_outcome(Outcome::Applied));
        }
    }
    Ok(())
}

/// What must be reached when `point` completes: the level, from its own point on, and at an explicit persist in any case.
fn demanded_at(contract: &Contract, point: SyncPoint) -> Persistence {
    let place = |p: SyncPoint| match p {
        SyncPoint::Never => 0, // the medium gives the level with each change
        SyncPoint::Request => 1,
        SyncPoint::Batch => 2,
        SyncPoint::Close => 3,
        SyncPoint::Explicit => 4,
    };
    if place(contract.sync) <= place(point) { contract.durability } else { Persistence::Volatile }
}

#[cfg(test)]
mod tests;
