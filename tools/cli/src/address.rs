//! Addresses of objects: `WS`, `WS/NAME`, `WS/GROUP/…/NAME`, `WS/uuid:…`, `iov://HOST/WS/NAME`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use ioverbs::{Clause, Error, Name, Result, Which};

use crate::output::quoted;

/// What a person writes for a workspace, group or collection. Components are bytes, as names are.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Address {
    /// The store, where the address names one.
    pub(crate) store: Option<String>,
    /// The first component.
    pub(crate) workspace: Which,
    /// What is behind it.
    pub(crate) path: Vec<Which>,
    /// It ends with a slash, so that only a group can be meant.
    pub(crate) slash: bool,
}

impl Address {
    /// Reads an address.
    pub(crate) fn parse(text: &OsStr) -> Result<Address> {
        let bytes = text.as_bytes();
        let shown = text.to_string_lossy();
        let (store, rest) = match bytes.strip_prefix(b"iov://") {
            Some(rest) => {
                let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
                let host = String::from_utf8_lossy(&rest[..end]);
                let store = (!host.is_empty()).then(|| format!("iov://{host}"));
                (store, rest.get(end + 1..).unwrap_or_default())
            }
            None => (None, bytes),
        };
        for scheme in ["file:", "mem:", "etcd:"] {
            if rest.starts_with(scheme.as_bytes()) {
                return Err(Error::invalid(format!(
                    "{shown:?} is the URL of a store; an address begins with a workspace: write --store {shown} WS/NAME"
                )));
            }
        }
        if rest.first() == Some(&b'/') {
            return Err(Error::invalid(format!(
                "{shown:?} begins with '/', as a local path does; an address begins with a workspace: WS/NAME"
            )));
        }
        if rest.is_empty() {
            return Err(Error::invalid("the address is empty: it is WS, WS/NAME or WS/GROUP/NAME"));
        }
        let slash = rest.last() == Some(&b'/');
        let rest = if slash { &rest[..rest.len() - 1] } else { rest };
        let mut parts = rest
            .split(|b| *b == b'/')
            .map(|part| Which::parse(part).map_err(|e| e.context(format!("the address {shown:?}"))));
        let workspace = parts.next().unwrap_or_else(|| Err(Error::internal("a split without parts")))?;
        Ok(Address { store, workspace, path: parts.collect::<Result<_>>()?, slash })
    }

    /// For arguments: an address that is checked with the rest of the command line.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Address> {
        OsStringValueParser::new().try_map(|text| Address::parse(&text).map_err(|e| e.detail().to_owned()))
    }

    /// The name that the address ends with.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self.path.last() {
            Some(Which::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// The address without its last component; that of a workspace is itself.
    pub(crate) fn parent(&self) -> Address {
        let mut parent = self.clone();
        parent.path.pop();
        parent
    }

    /// The address of something below.
    pub(crate) fn join(&self, which: Which) -> Address {
        let mut below = self.clone();
        below.path.push(which);
        below.slash = false;
        below
    }

    /// The address as bytes, to be given to another command.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(store) = &self.store {
            out.extend_from_slice(store.as_bytes());
            out.push(b'/');
        }
        push(&mut out, &self.workspace);
        for part in &self.path {
            out.push(b'/');
            push(&mut out, part);
        }
        out
    }

    /// The address in a command that a person is to copy.
    pub(crate) fn quoted(&self) -> String {
        quoted(&self.to_bytes())
    }

    /// The workspace, for messages.
    pub(crate) fn workspace_text(&self) -> String {
        crate::output::printable(&self.workspace_bytes())
    }

    /// The workspace in a command that a person is to copy.
    pub(crate) fn workspace_quoted(&self) -> String {
        quoted(&self.workspace_bytes())
    }

    fn workspace_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, &self.workspace);
        out
    }

    /// Fails unless it is a workspace alone.
    pub(crate) fn only_workspace(&self) -> Result<()> {
        if self.path.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{self} is inside a workspace; here a workspace is meant: {}",
            self.workspace_text()
        ))
        .with_clause(Clause::O1))
    }
}

fn push(out: &mut Vec<u8>, which: &Which) {
    match which {
        Which::Name(name) => out.extend_from_slice(name.as_bytes()),
        Which::Uuid(uuid) => out.extend_from_slice(uuid.to_string().as_bytes()),
    }
}

impl std::fmt::Display for Address {
    /// For messages: as it is written, with what is not text replaced.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::output::printable(&self.to_bytes()))
    }
}
