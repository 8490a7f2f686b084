//! Lifetimes as text: `workspace`, `process`, `lease(10min)`.

use iov_types::{Error, Lifetime, Result, Scope};

use crate::quantity;

/// Reads a lifetime.
pub fn parse_lifetime(text: &str) -> Result<Lifetime> {
    let text = text.trim();
    let wrong = |why: String| {
        Error::invalid(format!("lifetime {text:?} {why}: it is workspace, process, or lease(TIME) as in lease(10min)"))
    };
    if let Some(rest) = text.strip_prefix("lease") {
        let time = rest.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let time = time.ok_or_else(|| wrong("has no time".into()))?;
        return match quantity::parse_time(time.trim()) {
            Ok(0) => Err(wrong("has no time".into())),
            Ok(ns) => Ok(Lifetime::lease(ns)),
            Err(why) => Err(wrong(why)),
        };
    }
    match text {
        "workspace" => Ok(Lifetime::KEPT),
        "process" => Ok(Lifetime::PROCESS),
        _ => Err(wrong("is unknown".into())),
    }
}

/// Writes a lifetime as [`parse_lifetime`] reads it.
pub fn format_lifetime(lifetime: Lifetime) -> String {
    match lifetime.scope {
        Scope::Lease => format!("lease({})", quantity::format_time(lifetime.lease_ns)),
        scope => scope.text().into(),
    }
}
