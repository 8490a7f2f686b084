//! Extended attributes: those of `user.` are the metadata of the collection.
//!
//! `user.temperature` is the key `temperature`. A value that is text is kept as such, and others as bytes; where the key has a
//! number, a truth value or a time already, text that reads as one stays one. Reading gives text for all of them. `user.iov.size`
//! and other keys of the system can be read. `user.posix.controls` of a directory says what is promised of the files that are made
//! in it and below. `system.posix_acl_access` and `system.posix_acl_default` are [access control lists](crate::acl).

use std::time::Duration;

use ioverbs::{Collection, Kind as Failure, Metadata, Op, Output, Value, posix::is_acl_key};

use crate::{
    Errno, Kind, Node, Outcome, acl,
    promised::{self, CONTROLS},
    special::RDEV,
};

/// The names of which we know.
const USER: &[u8] = b"user.";

/// What `setxattr` does about what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetXattr {
    /// It is made or replaced.
    #[default]
    Either,
    /// It must not be there (`XATTR_CREATE`).
    Create,
    /// It must be there (`XATTR_REPLACE`).
    Replace,
}

/// The key of an attribute.
fn key(name: &[u8]) -> Outcome<&str> {
    let key = name.strip_prefix(USER).ok_or(Errno::EOPNOTSUPP)?;
    if key.is_empty() {
        return Err(Errno::EINVAL);
    }
    if key.len() > ioverbs::limits::KEY_BYTES {
        return Err(Errno::ERANGE);
    }
    std::str::from_utf8(key).map_err(|_| Errno::EINVAL)
}

/// A value as a program reads it.
pub(crate) fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Str(text) => text.as_bytes().to_vec(),
        Value::I64(number) | Value::Time(number) => number.to_string().into_bytes(),
        Value::F64(number) => number.to_string().into_bytes(),
        Value::Bool(truth) => truth.to_string().into_bytes(),
    }
}

/// A value as it is kept, given what is there.
fn value_of(bytes: &[u8], there: Option<&Value>) -> Value {
    let Ok(text) = std::str::from_utf8(bytes) else { return Value::Bytes(bytes.to_vec()) };
    let typed = match there {
        Some(Value::I64(_)) => text.parse().ok().map(Value::I64),
        Some(Value::Time(_)) => text.parse().ok().map(Value::Time),
        Some(Value::F64(_)) => text.parse().ok().filter(|x: &f64| !x.is_nan()).map(Value::F64),
        Some(Value::Bool(_)) => text.parse().ok().map(Value::Bool),
        Some(Value::Bytes(_)) => Some(Value::Bytes(bytes.to_vec())),
        _ => None,
    };
    // Text does not hold NUL, and programs put it into values all the same.
    typed.unwrap_or_else(|| if bytes.contains(&0) { Value::Bytes(bytes.to_vec()) } else { Value::Str(text.into()) })
}

impl Node {
    fn value(&self, key: &str) -> Outcome<Option<Value>> {
        let get = self.with_handle("getxattr", |c| vec![Op::MetaGet { c: c.clone(), key: key.to_owned() }]);
        match get {
            // It has none of this name, or is gone itself.
            Err(Errno::ENOENT) => self.attributes().map(|_| None),
            other => match other?.pop().map(|status| status.output) {
                Some(Output::Value(value)) => Ok(Some(value)),
                _ => Err(Errno::EIO),
            },
        }
    }

    /// The value of an attribute.
    pub fn xattr(&self, name: &[u8]) -> Outcome<Vec<u8>> {
        if acl::is_list(name) {
            return self.list_within(name, Duration::ZERO);
        }
        let key = key(name)?;
        self.value(key)?.map(|value| bytes_of(&value)).ok_or(Errno::ENODATA)
    }

    /// The names of all attributes.
    pub fn xattrs(&self) -> Outcome<Vec<Vec<u8>>> {
        let list = self.with_handle("listxattr", |c| vec![Op::MetaList { c: c.clone() }])?;
        let Some(Output::Metadata(pairs)) = list.into_iter().next().map(|status| status.output) else {
            return Err(Errno::EIO);
        };
        let named = |key: &str| acl::attribute(key).map_or_else(|| [USER, key.as_bytes()].concat(), <[u8]>::to_vec);
        Ok(pairs.iter().filter(|(key, _)| *key != RDEV).map(|(key, _)| named(key)).collect())
    }

    /// Sets an attribute.
    pub fn set_xattr(&self, name: &[u8], bytes: &[u8], how: SetXattr) -> Outcome<()> {
        self.file_system().check_writable()?;
        if acl::is_list(name) {
            return self.set_list(name, bytes);
        }
        let key = key(name)?;
        if key == RDEV || is_acl_key(key) {
            return Err(Errno::EPERM);
        }
        if key == CONTROLS {
            self.check_controls(bytes)?;
        }
        let there = self.value(key)?;
        match (how, &there) {
            (SetXattr::Create, Some(_)) => return Err(Errno::EEXIST),
            (SetXattr::Replace, None) => return Err(Errno::ENODATA),
            _ => {}
        }
        let mut pairs = Metadata::new();
        pairs.set(key, value_of(bytes, there.as_ref())).map_err(|e| match e.kind() {
            Failure::TooBig => Errno::E2BIG,
            _ => Errno::EPERM,
        })?;
        let says = key == CONTROLS;
        says.then(|| self.unsay());
        let put = self.with_handle("setxattr", |c| vec![Op::MetaPut { c: c.clone(), pairs: pairs.clone() }]);
        says.then(|| self.unsay());
        self.was_changed();
        put.map(drop).map_err(|e| if e == Errno::EFBIG { Errno::E2BIG } else { e })
    }

    /// Its attributes were changed: it is asked when that was.
    pub(crate) fn was_changed(&self) {
        self.touch();
        if self.kind() == Kind::Directory {
            self.untell();
        }
    }

    /// What is said of the files below it must be understood, and be said by a directory.
    fn check_controls(&self, bytes: &[u8]) -> Outcome<()> {
        if self.kind() != Kind::Directory || self.uuid().is_nil() {
            return Err(Errno::EINVAL);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
        let controls = promised::parse(text).map_err(|_| Errno::EINVAL)?;
        let fs = self.file_system();
        let checked = fs.check_promise(controls);
        checked.map_err(|refusal| fs.errno("setxattr", &refusal.error))
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> Outcome<()> {
        self.file_system().check_writable()?;
        if acl::is_list(name) {
            return self.remove_list(name);
        }
        let key = key(name)?;
        if key.starts_with("iov.") || key == RDEV || is_acl_key(key) {
            return Err(Errno::EPERM);
        }
        self.settle()?;
        let remove = &mut |c: &Collection| vec![Op::MetaRemove { c: c.clone(), key: key.to_owned() }];
        let (removed, perhaps) = self.file_system().once(|| self.try_with_handle(remove));
        (key == CONTROLS).then(|| self.unsay());
        self.was_changed();
        match removed {
            // By an attempt that was not answered, it seems.
            Err(e) if perhaps && e.kind() == Failure::NotFound => self.attributes().map(drop),
            // It has none of this name, or is gone itself.
            Err(e) if e.kind() == Failure::NotFound => self.attributes().and(Err(Errno::ENODATA)),
            removed => removed.map(drop).map_err(|e| self.file_system().errno("removexattr", &e)),
        }
    }
}
