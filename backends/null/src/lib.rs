//! `libiov_backend_null.so`: the target that keeps no bytes, behind `iov_backend_ops_v1`. It shows how a target of this project
//! becomes a shared object, and what the way through one costs.

use std::{ffi::CStr, sync::Arc};

use iov_foreign::export::Exported;
use iov_store::{Backend, Null};
use iov_types::{Error, Result};

struct NullBackend;

impl Exported for NullBackend {
    const NAME: &'static CStr = c"null";

    fn open(config: &str) -> Result<Arc<dyn Backend>> {
        if !config.is_empty() {
            return Err(Error::invalid("the null backend takes no configuration"));
        }
        Ok(Arc::new(Null::new(iov_semantics::stores::null(1))))
    }
}

iov_foreign::export_backend!(NullBackend);
