//! Who may do what (A1, A2). The catalog decides; clients check nothing.

use iov_types::{AccessList, Caller, Clause, Error, Result, Right, Rights, Subject};

use crate::record::WorkspaceRecord;

/// The highest right of a caller in a workspace. Nobody is special but its owner.
pub(crate) fn rights(record: &WorkspaceRecord, caller: &Caller) -> Rights {
    if caller.uid == record.owner { Some(Right::Admin) } else { record.access.rights(caller) }
}

/// Fails unless a caller has a right.
pub(crate) fn need(record: &WorkspaceRecord, rights: Rights, right: Right) -> Result<()> {
    if rights.is_some_and(|has| has as u8 >= right as u8) {
        return Ok(());
    }
    let what = match right {
        Right::Read => "look into",
        Right::Write => "change what is in",
        Right::Admin => "administer",
    };
    Err(Error::denied(format!("this user may not {what} the workspace {:?}: ask its owner for access", record.name))
        .with_clause(Clause::A1))
}

/// A store that only one user can reach cannot give access to others (A2).
pub(crate) fn check_single_user(uid: u32, owner: u32, access: &AccessList) -> Result<()> {
    let other = access.entries.iter().any(|entry| entry.subject != Subject::User(uid));
    if owner == uid && !other {
        return Ok(());
    }
    Err(Error::refused(
        Clause::A2,
        format!("this store serves the user {uid} alone, nobody else can reach it; offer: no access list"),
    ))
}

#[cfg(test)]
mod tests;
