//! What holds of the language as a whole; the parts have files of their own.

use std::collections::BTreeMap;

use iov_types::{Kind, Name, Uuid, Value};

use super::{Facts, Key, Predicate, SystemKey};

mod errors;
mod evaluation;
mod grammar;
mod naive;
mod property;

/// A record of nothing but facts.
#[derive(Clone, Debug, Default)]
pub(super) struct Fake {
    pub(super) user: BTreeMap<String, Value>,
    pub(super) system: BTreeMap<SystemKey, Value>,
    pub(super) names: Vec<(Uuid, Name)>,
}

impl Fake {
    pub(super) fn with(mut self, key: &str, value: Value) -> Fake {
        self.user.insert(key.to_owned(), value);
        self
    }

    pub(super) fn system(mut self, key: SystemKey, value: Value) -> Fake {
        self.system.insert(key, value);
        self
    }

    pub(super) fn named(mut self, group: Uuid, name: impl AsRef<[u8]>) -> Fake {
        self.names.push((group, Name::new(name).unwrap()));
        self
    }
}

impl Facts for Fake {
    fn user(&self, key: &str) -> Option<&Value> {
        self.user.get(key)
    }

    fn system(&self, key: SystemKey) -> Option<Value> {
        self.system.get(&key).cloned()
    }

    fn names(&self) -> &[(Uuid, Name)] {
        &self.names
    }
}

pub(super) fn parse(text: &str) -> Predicate {
    Predicate::parse(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(super) fn holds(text: &str, facts: &Fake) -> bool {
    parse(text).matches(facts)
}

/// The first line of the error that a text leads to.
pub(super) fn error(text: &str, params: &[Value]) -> String {
    let e = Predicate::parse(text, params).expect_err(text);
    assert_eq!(e.kind(), Kind::Invalid);
    e.detail().lines().next().unwrap().to_owned()
}

pub(super) fn str(s: &str) -> Value {
    Value::Str(s.to_owned())
}

#[test]
fn o5_example_of_the_interface() {
    let text = "temperature > 300 and experiment = \"nacelle\" and iov.name ~ \"run_*\" and exists(iteration) \
                and iov.mtime > 2026-01-01T00:00:00Z";
    let record = Fake::default()
        .with("temperature", Value::F64(301.5))
        .with("experiment", str("nacelle"))
        .with("iteration", Value::I64(0))
        .system(SystemKey::Mtime, Value::Time(1_767_225_600_000_000_001))
        .named(Uuid::NIL, "run_7");
    assert!(holds(text, &record));
    assert!(!holds(text, &record.clone().with("temperature", Value::I64(300))));
    assert!(!holds(text, &record.clone().system(SystemKey::Mtime, Value::Time(1_767_225_600_000_000_000))));
    let keys: Vec<_> = parse(text).keys().into_iter().map(Key::to_string).collect();
    assert_eq!(keys, ["experiment", "iteration", "temperature", "iov.name", "iov.mtime"]);
}
