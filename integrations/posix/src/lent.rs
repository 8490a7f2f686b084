//! The file below a file, lent to those who read its bytes by themselves: the kernel, for programs that have it open.

use std::sync::Arc;

use ioverbs::LentFile;

use crate::File;

impl File {
    /// The file in which the bytes lie, each at its own offset, if it is sealed and there is one that may be lent.
    pub fn lend(&self) -> Option<Arc<dyn LentFile>> {
        if self.collection().is_writable() {
            return None;
        }
        self.collection().lend_file().ok()
    }
}
