//! Whether a value can be compared with a key at all. User keys take every type; system keys have one.

use iov_types::{Uuid, Value};

use super::{
    Key,
    ast::Op,
    key::{Class, SystemKey},
};

/// The value in the form in which it is compared with the key; the message says what the key needs. `op` is `None` for the
/// ends of a range.
pub(crate) fn value(key: &Key, op: Option<Op>, value: Value) -> Result<Value, String> {
    let Key::System(key) = key else { return Ok(value) };
    match (key.class(), &value) {
        (Class::Name, Value::Str(_) | Value::Bytes(_))
        | (Class::Number, Value::I64(_) | Value::F64(_))
        | (Class::Time, Value::Time(_))
        | (Class::Text, Value::Str(_)) => Ok(value),
        (Class::Uuid, Value::Str(s)) => match Uuid::parse(s) {
            Ok(uuid) => Ok(Value::Str(uuid.to_string())),
            Err(_) => Err(needs(*key)),
        },
        (Class::Word(words), Value::Str(s)) => {
            // An order of words may be asked for with any text; equality with a word that does not exist never holds.
            if matches!(op, Some(Op::Eq | Op::Ne)) && !words.contains(&s.as_str()) {
                return Err(needs(*key));
            }
            Ok(value)
        }
        _ => Err(needs(*key)),
    }
}

/// Whether `^=` can hold.
pub(crate) fn prefix(key: &Key, value: &Value) -> Result<(), String> {
    match (value, key) {
        (Value::Str(_), key) if is_text(key) => Ok(()),
        (Value::Bytes(_), Key::User(_) | Key::System(SystemKey::Name)) => Ok(()),
        (Value::Str(_) | Value::Bytes(_), Key::System(key)) => Err(format!("'^=' needs text, {}", needs(*key))),
        _ => Err("expected a string or bytes after '^='".to_owned()),
    }
}

/// The text of a pattern, if `~` can hold.
pub(crate) fn pattern<'a>(key: &Key, value: &'a Value) -> Result<&'a str, String> {
    match (value, key) {
        (Value::Str(s), key) if is_text(key) => Ok(s),
        (Value::Str(_), Key::System(key)) => Err(format!("'~' needs text, {}", needs(*key))),
        _ => Err("expected a pattern in quotes after '~', as in \"run_*\"".to_owned()),
    }
}

/// Whether two values can be compared.
pub(crate) fn same_class(a: &Value, b: &Value) -> bool {
    let number = |v: &Value| matches!(v, Value::I64(_) | Value::F64(_));
    a.value_type() == b.value_type() || number(a) && number(b)
}

fn is_text(key: &Key) -> bool {
    match key {
        Key::User(_) => true,
        Key::System(key) => !matches!(key.class(), Class::Number | Class::Time),
    }
}

fn needs(key: SystemKey) -> String {
    match key.class() {
        Class::Name => format!("{key} is a name: compare it with a string or with bytes such as x\"00ff\""),
        Class::Uuid => format!("{key} is a UUID: write uuid:xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
        Class::Number => format!("{key} is a number: write it without quotes, as in 4096 or 4KiB"),
        Class::Time => format!("{key} is a timestamp: write it without quotes, as in 2026-01-31T12:00:00Z"),
        Class::Text => format!("{key} is text: write a string in quotes"),
        Class::Word(words) => format!("{key} is one of \"{}\"", words.join("\", \"")),
    }
}
