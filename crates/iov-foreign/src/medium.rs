//! A backend as a target.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use iov_store::{
    OpCx,
    objects::{Call, Medium, Objects, Space},
};
use iov_types::{Capability, Demand, Error, Kind, ObjectId, Persistence, Result, Uuid, limits};

use crate::{
    abi::{self, Entry, Ops},
    body::{ForeignBody, Shared},
    prepared::Prepared,
    table::{Log, Table, level},
};

/// Objects at a backend.
pub type Foreign = Objects<ForeignMedium>;

/// Where a table comes from.
pub enum Source {
    /// A shared object that is loaded now. It stays loaded until the process ends, since nobody knows who still runs in it.
    File(PathBuf),
    /// A table that the program has.
    Linked(&'static Ops),
}

/// How a backend is used.
pub struct Setup<'a> {
    /// Its own configuration.
    pub config: &'a str,
    /// A file in which is kept what it holds of stages, for a process after this one; `None`: there will be none.
    pub stages: Option<&'a Path>,
    /// The strongest level to offer, whatever the backend can: its names may live less long.
    pub at_most: Persistence,
    /// Most bytes in one stage (B4); they are in memory until they are published.
    pub stage_bytes: u64,
    /// Where its lines go.
    pub log: Log,
}

/// Brings a backend to life.
///
/// Errors: `NotFound` and `Invalid` for a file that cannot be loaded or is no backend; what the backend says of its configuration.
pub fn open(source: &Source, setup: Setup<'_>) -> Result<Foreign> {
    let ops: *const Ops = match source {
        Source::Linked(ops) => *ops,
        Source::File(path) => load(path)?,
    };
    // SAFETY: who names a shared object or links a table vouches for it: it runs in this process with all its rights.
    let table = unsafe { Table::open(ops, setup.config, setup.log) }?;
    let shared = Arc::new(Shared { table, prepared: Prepared::open(setup.stages)? });
    let medium = ForeignMedium { shared, at_most: setup.at_most };
    Ok(Objects::over(medium.capability(setup.stage_bytes), medium))
}

fn load(path: &Path) -> Result<*const Ops> {
    if !path.exists() {
        return Err(Error::not_found(format!("there is no shared object {}", path.display())));
    }
    // A bare name would be looked for in the system's places, and found there another one.
    let whole = std::path::absolute(path).map_err(Error::from)?;
    let bad = |e: libloading::Error| Error::invalid(format!("{} is no backend: {e}", path.display()));
    // SAFETY: as in `open`: its initialisers run here.
    let library = unsafe { libloading::Library::new(&whole) }.map_err(bad)?;
    // SAFETY: the name stands for a function of this type (`ioverbs.h`).
    let entry: Entry = *unsafe { library.get::<Entry>(abi::ENTRY.as_bytes()) }.map_err(bad)?;
    // SAFETY: as above.
    let ops = unsafe { entry() };
    std::mem::forget(library);
    Ok(ops)
}

/// What a table makes of it.
pub struct ForeignMedium {
    shared: Arc<Shared>,
    at_most: Persistence,
}

/// Objects asked for at once.
const LISTED: usize = 1024;

impl ForeignMedium {
    /// The name that the backend has given itself.
    pub fn name(&self) -> &str {
        self.shared.table.name()
    }

    fn best(&self) -> Persistence {
        level(self.shared.table.capability().durability).unwrap_or(Persistence::Volatile).min(self.at_most)
    }

    fn capability(&self, stage_bytes: u64) -> Capability {
        let table = &self.shared.table;
        let told = table.capability();
        Capability {
            medium: Capability::RUN_TIME,
            durability: self.best(),
            // One that is handed over in pieces is none.
            max_unit: told.unit.min(table.most()).min(limits::MAX_UNIT),
            staging: [abi::STAGE, abi::PUBLISH, abi::DISCARD].into_iter().all(|kind| table.can(kind)),
            stage_bytes,
            once: false,
            bursty: false,
            targets: 1,
            incarnation: told.incarnation,
        }
    }
}

impl Medium for ForeignMedium {
    type Body = ForeignBody;

    fn survives(&self) -> (Persistence, &str) {
        (self.best(), "a store on this backend")
    }

    fn create(&self, id: ObjectId) -> ForeignBody {
        ForeignBody::new(self.shared.clone(), id)
    }

    fn find(&self, cx: &OpCx, id: ObjectId) -> Result<Option<ForeignBody>> {
        let call = Call { cx, demand: &Demand::NONE };
        match self.shared.plain(self.shared.op(abi::STAT, id, call)) {
            Ok(stat) => Ok(Some(ForeignBody::there(self.shared.clone(), id, &stat))),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn list(&self, cx: &OpCx, after: Option<ObjectId>, max: usize) -> Result<Option<Vec<ObjectId>>> {
        let mut found: Vec<ObjectId> = Vec::new();
        let mut after = after.unwrap_or(ObjectId { collection: Uuid::NIL, slot: 0 });
        while found.len() < max {
            let mut page = vec![abi::Object::default(); (max - found.len()).min(LISTED)];
            let mut op = self.shared.op(abi::LIST, after, Call { cx, demand: &Demand::NONE });
            op.len = size_of_val(&page[..]) as u64;
            op.buf = page.as_mut_ptr().cast();
            // SAFETY: the page lives until the evidence has come.
            let answer = unsafe { self.shared.table.call(op) }?;
            let count = usize::try_from(answer.bytes).unwrap_or(usize::MAX) / size_of::<abi::Object>();
            if count > page.len() {
                return Err(Error::internal("a backend has listed more objects than there was room for"));
            }
            for object in &page[..count] {
                let id = ObjectId { collection: Uuid(object.collection), slot: object.slot };
                if id <= after {
                    return Err(Error::internal("a backend lists objects out of order: it would go on for ever"));
                }
                after = id;
                found.push(id);
            }
            if count < page.len() {
                break;
            }
        }
        Ok(Some(found))
    }

    fn space(&self) -> Option<Space> {
        let (bytes, free) = self.shared.table.space()?;
        Some(Space { bytes, taken: bytes.saturating_sub(free) })
    }

    fn settle(&self, cx: &OpCx, keep: &[Uuid]) -> Vec<Error> {
        let call = Call { cx, demand: &Demand::NONE };
        let mut failed = Vec::new();
        for (id, stage) in self.shared.prepared.earlier() {
            if keep.contains(&stage) {
                continue;
            }
            let mut op = self.shared.op(abi::DISCARD, id, call);
            op.batch = stage.0;
            match self.shared.plain(op) {
                Ok(_) => self.shared.prepared.remove((id, stage)),
                // With the object all its stages have gone.
                Err(e) if e.kind() == Kind::NotFound => self.shared.prepared.remove((id, stage)),
                Err(e) => failed.push(e),
            }
        }
        failed
    }

    fn prepared(&self) -> Vec<(ObjectId, Uuid)> {
        self.shared.prepared.earlier()
    }

    fn keeps(&self) -> bool {
        true
    }
}
