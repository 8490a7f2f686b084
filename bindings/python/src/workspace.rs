//! Workspaces.

use ioverbs::WorkspaceAttr;
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyString},
};

use crate::{
    convert::controls,
    error::Raise,
    names::{name_out, uuid_out},
    run::Detached,
    value::{metadata, texts},
};

/// An open workspace.
#[pyclass(frozen, module = "ioverbs._ioverbs")]
pub(crate) struct Workspace(Detached<ioverbs::Workspace>);

impl Workspace {
    pub(crate) fn new(inner: ioverbs::Workspace) -> Workspace {
        Workspace(Detached::new(inner))
    }

    pub(crate) fn usable(&self, py: Python<'_>) -> PyResult<&ioverbs::Workspace> {
        self.0.check().or_raise(py)?;
        Ok(&self.0)
    }
}

#[pymethods]
impl Workspace {
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        uuid_out(py, self.0.uuid())
    }

    /// Its name when it was opened.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        name_out(py, &self.0.name())
    }

    #[getter]
    fn writable(&self) -> bool {
        self.0.writable()
    }

    /// Metadata keys of which an index was kept when it was opened.
    #[getter]
    fn indexes(&self) -> Vec<String> {
        self.0.indexes()
    }

    /// Default controls of what is created in it, as text.
    fn defaults(&self) -> String {
        ioverbs::text::format(&self.0.defaults())
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.usable(py).map(drop)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Properties from a dict; what is missing or `None` stays as it is.
pub(crate) fn workspace_attr(attr: &Bound<'_, PyDict>) -> PyResult<WorkspaceAttr> {
    let py = attr.py();
    let get = |key: &str| attr.get_item(key).map(|v| v.filter(|v| !v.is_none()));
    let text = |key: &str| get(key)?.map(|v| v.extract::<String>()).transpose();
    let indexes = get("indexes")?;
    let indexes = indexes.as_ref().map(|v| v.cast::<PyList>()).transpose()?;
    // A user is named by name or number.
    let owner = match get("owner")? {
        Some(owner) if owner.is_instance_of::<PyString>() => {
            Some(ioverbs::user_id(&owner.extract::<String>()?).or_raise(py)?)
        }
        Some(owner) => Some(owner.extract()?),
        None => None,
    };
    Ok(WorkspaceAttr {
        controls: text("controls")?.map(|text| controls(py, Some(&text))).transpose()?,
        layout: None,
        metadata: metadata(get("metadata")?.as_ref())?,
        owner,
        access: text("access")?.map(|text| ioverbs::parse_access(&text)).transpose().or_raise(py)?,
        // No list says nothing about them, an empty one that there are to be none.
        indexes: match indexes {
            Some(none) if none.is_empty() => WorkspaceAttr::no_indexes(),
            some => texts(some)?,
        },
        quota_bytes: get("quota_bytes")?.map(|v| v.extract()).transpose()?,
        quota_collections: get("quota_collections")?.map(|v| v.extract()).transpose()?,
        expires_ns: get("expires_ns")?.map(|v| v.extract()).transpose()?,
    })
}
