//! One verb, one file, the same name as in the table of `iov-wire`.

pub(crate) mod catalog;
pub(crate) mod give_back;
pub(crate) mod grant;
pub(crate) mod hello;
pub(crate) mod join;
pub(crate) mod object;
pub(crate) mod renew;
pub(crate) mod resume;
pub(crate) mod shutdown;
pub(crate) mod status;
pub(crate) mod sums;
pub(crate) mod take_back;
