//! Controls, as `iov-semantics` judges them: here only its refusals become errors.

use iov_semantics::{Control, Refusal, admit, resolve};
use iov_types::{Capability, Controls, Effective, Layout, Result};

/// What a create gets, or the refusal. Looks at the layout too.
pub(crate) fn at_create(
    defaults: &Controls,
    asked: &Controls,
    layout: &Layout,
    capability: &Capability,
) -> Result<Effective> {
    let effective = resolve::create(defaults, asked, capability).map_err(refusal)?;
    if is_set(layout) {
        admit(&effective, Some(layout), capability).map_err(refusal)?;
    }
    Ok(effective)
}

/// What an open gets, and whether it may write at that level.
pub(crate) fn at_open(collection: &Effective, asked: &Controls, capability: &Capability) -> Result<(Effective, bool)> {
    if *asked == Controls::default() {
        return Ok((collection.clone(), true));
    }
    let effective = resolve::open(collection, asked, capability).map_err(refusal)?;
    let writes = resolve::writes_allowed(collection, &effective).is_ok();
    Ok((effective, writes))
}

/// Lays more over controls: what is set there wins.
pub(crate) fn overlay(controls: &mut Controls, more: &Controls) {
    Control::ALL.iter().filter(|control| control.is_set(more)).for_each(|control| control.copy(more, controls));
}

/// Controls as text.
pub(crate) fn text(controls: &Controls) -> String {
    iov_semantics::text::format(controls)
}

/// Whether a layout says anything, its revision aside.
pub(crate) fn is_set(layout: &Layout) -> bool {
    *layout != Layout { revision: layout.revision, ..Layout::default() }
}

fn refusal(refusal: Refusal) -> iov_types::Error {
    refusal.error
}
