//! Where the bytes of a `mem:` store lie: on the heap of this process, nowhere, or at a backend that a shared object brings or
//! the program has linked in.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use iov_foreign::{Setup, Source, abi::Ops};
use iov_semantics::{quantity::parse_size, stores};
use iov_store::{Backend, Heap, Null};
use iov_types::{Error, Persistence, Result, limits};

/// Tables that this program has given a name.
static IMPORTED: Mutex<Option<HashMap<String, &'static Ops>>> = Mutex::new(None);

/// Makes a table known by a name, for `mem:STORE?storage=import:NAME,CONFIG`.
///
/// Errors: `Invalid` for a name that cannot be in a URL, `Exists` if another table has it.
pub fn import(name: &str, ops: &'static Ops) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Error::invalid(format!("{name:?} names no backend: letters, digits, '-', '_' and '.' do")));
    }
    let mut imported = IMPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let there = imported.get_or_insert_default().entry(name.to_owned()).or_insert(ops);
    if !std::ptr::eq(*there, ops) {
        return Err(Error::exists(format!("another backend was imported as {name:?}: give this one its own name")));
    }
    Ok(())
}

fn foreign(source: &Source, config: &str) -> Result<Arc<dyn Backend>> {
    // In front of a program that has asked for nothing, lines of a backend would be in the way.
    // The names are in this process: with it everything is gone, whatever the backend keeps (P7).
    let at_most = Persistence::Volatile;
    let setup = Setup { config, stages: None, at_most, stage_bytes: limits::STAGE_BYTES, log: Box::new(|_, _| {}) };
    Ok(Arc::new(iov_foreign::open(source, setup)?))
}

/// Opens what a URL names.
pub(crate) fn target(text: &str) -> Result<Arc<dyn Backend>> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let (name, config) = rest.split_once(',').unwrap_or((rest, ""));
    Ok(match kind {
        "heap" if rest.is_empty() => Arc::new(Heap::new(stores::mem(1))),
        "heap" => {
            let size = parse_size(rest).map_err(|why| Error::invalid(format!("the size {rest:?} {why}")))?;
            Arc::new(Heap::limited(stores::mem(1), size))
        }
        "null" if rest.is_empty() => Arc::new(Null::new(stores::null(1))),
        "virtual" if !name.is_empty() => foreign(&Source::File(name.into()), config)?,
        "import" if !name.is_empty() => {
            let imported = IMPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            let ops = imported.as_ref().and_then(|all| all.get(name)).copied();
            drop(imported);
            let ops = ops.ok_or_else(|| {
                Error::not_found(format!("no backend was imported as {name:?}: call iov_backend_import before"))
            })?;
            foreign(&Source::Linked(ops), config)?
        }
        _ => {
            return Err(Error::invalid(format!(
                "storage={text} is none of a mem: store: there are heap, heap:SIZE, null, virtual:LIBRARY[,CONFIGURATION] \
                 and import:NAME[,CONFIGURATION]"
            )));
        }
    })
}
