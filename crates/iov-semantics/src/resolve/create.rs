//! Controls of a new collection.

use iov_types::{Capability, Controls, Effective, Persistence};

use super::{stray, with_defaults};
use crate::{Refusal, admit, control::fill};

/// What a create gets: what it asks for, else the workspace's defaults, else those of the clauses.
///
/// The default level of persistence is `process` where the medium gives it, else `volatile`. A parameter in the
/// workspace's defaults waits for somebody who asks for its value; one in `asked` without its value is an error.
pub fn create(workspace: &Controls, asked: &Controls, capability: &Capability) -> Result<Effective, Refusal> {
    let mut merged = asked.clone();
    fill(&mut merged, workspace);
    let wanted = with_defaults(&merged, capability.durability.min(Persistence::Process));
    if let Some(objection) = stray(asked, &wanted) {
        let offer = admit::mend(wanted.clone(), capability);
        return Err(Refusal::new(objection, &wanted, offer));
    }
    Ok(admit::admit(&wanted, None, capability)?.effective)
}
