//! What cannot be had: the error, and what can be had instead.

use iov_types::{Clause, Controls, Effective, Error, Kind};

use crate::{Control, text};

/// A refusal, or a contradiction, with the nearest offer.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// What cannot be had and why; it names the clause, and its detail ends with the offer in text.
    pub error: Error,
    /// The nearest set of controls that [`crate::admit`] lets pass on the same capability.
    pub offer: Effective,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        refusal.error
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refusal {}

/// What stands between the reason and the offer.
const OFFER: &str = "; offer: ";

impl Refusal {
    /// Why, without the offer.
    pub fn reason(&self) -> &str {
        self.error.detail().rsplit_once(OFFER).map_or(self.error.detail(), |(reason, _)| reason)
    }

    /// The offer as text, only what differs from what was asked.
    pub fn offer_text(&self) -> &str {
        self.error.detail().rsplit_once(OFFER).map_or("", |(_, offer)| offer)
    }

    /// Of the first objection, against `asked`, with everything in `offer` mended.
    pub(crate) fn new(objection: Objection, asked: &Effective, offer: Effective) -> Refusal {
        let Objection { kind, clause, reason, about } = objection;
        let mut differs = Controls::default();
        for control in Control::ALL {
            if !control.same(asked, &offer) || matches!(about, About::Control(c) if c == *control) {
                control.copy(&Controls::from(&offer), &mut differs);
            }
        }
        let mut parts = Vec::new();
        match about {
            About::Layout(remedy) => parts.push(remedy),
            // "Nothing is known" has no text of its own: the remedy is to leave the control out.
            About::Control(c) if !c.is_set(&differs) => parts.push(format!("leave {} out", c.name())),
            About::Control(_) => {}
        }
        let controls = text::format(&differs);
        if !controls.is_empty() {
            parts.push(controls);
        }
        let mut error = Error::new(kind, format!("{reason}{OFFER}{}", parts.join(",")));
        if let Some(clause) = clause {
            error = error.with_clause(clause);
        }
        Refusal { error, offer }
    }
}

/// What an objection is about, and so what an offer must say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum About {
    /// A control: the offer shows its mended value.
    Control(Control),
    /// The layout, and what to set there.
    Layout(String),
}

/// Why something cannot be had.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Objection {
    pub(crate) kind: Kind,
    pub(crate) clause: Option<Clause>,
    pub(crate) reason: String,
    pub(crate) about: About,
}

impl Objection {
    /// A promise that cannot be given.
    pub(crate) fn refused(control: Control, clause: Clause, reason: impl Into<String>) -> Objection {
        let about = About::Control(control);
        Objection { kind: Kind::Refused, clause: Some(clause), reason: reason.into(), about }
    }

    /// Something that contradicts itself, wherever it is asked.
    pub(crate) fn invalid(control: Control, clause: Clause, reason: impl Into<String>) -> Objection {
        Objection { kind: Kind::Invalid, ..Objection::refused(control, clause, reason) }
    }
}
