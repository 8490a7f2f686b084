//! The predicate language of searches (O5): text to a tree, a tree to text, and whether a record fulfils it.
//!
//! The grammar is in `docs/guide/search.md`. No condition holds for a key that is not there; `not` then inverts. `!=` and
//! `!~` hold for a key that is there with any other value, of another type too. NaN equals nothing.

mod ast;
mod check;
mod compare;
mod display;
mod error;
mod eval;
mod glob;
mod key;
mod lex;
mod number;
mod parse;
mod time;

use std::collections::BTreeSet;

use iov_types::{Name, Result, Uuid, Value};

pub(crate) use ast::{Node, Op, Test};
pub use compare::compare;
pub(crate) use error::at as error_at;
pub use key::{Key, SystemKey};
pub(crate) use lex::{Token, tokens};

/// What a predicate is asked about.
pub trait Facts {
    /// The value of a user key.
    fn user(&self, key: &str) -> Option<&Value>;

    /// The value of a system key; never asked for [`SystemKey::Name`] and [`SystemKey::Group`].
    fn system(&self, key: SystemKey) -> Option<Value>;

    /// The names, each with the group that holds it (nil = the root). A condition on `iov.name` or `iov.group` holds if
    /// one of them fulfils it.
    fn names(&self) -> &[(Uuid, Name)];
}

/// A parsed predicate, its parameters filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicate {
    root: Node,
}

impl Predicate {
    /// Reads a predicate; `params` are the values of its `?`, in order. An error has the column, what was expected and
    /// what was found.
    pub fn parse(text: &str, params: &[Value]) -> Result<Predicate> {
        parse::parse(text, params).map(|root| Predicate { root })
    }

    /// Whether the facts fulfil it.
    pub fn matches(&self, facts: &dyn Facts) -> bool {
        self.root.matches(facts)
    }

    /// The keys it mentions.
    pub fn keys(&self) -> BTreeSet<&Key> {
        let mut keys = BTreeSet::new();
        self.root.each(&mut |c| {
            keys.insert(&c.key);
        });
        keys
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

#[cfg(test)]
mod tests;
