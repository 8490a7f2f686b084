//! Predicates, before anybody is asked.

use iov_catalog::predicate::Predicate;
use iov_types::{Error, Result, Value};

/// Whether a predicate can be read, its `?` filled in; `None` = everything, which takes no values.
pub fn check_predicate(text: Option<&str>, params: &[Value]) -> Result<()> {
    match text {
        Some(text) => Predicate::parse(text, params).map(drop),
        None if params.is_empty() => Ok(()),
        None => Err(Error::invalid("there are values for a predicate, but no predicate")),
    }
}
