//! Advisory locks: `iov_lock`, `iov_unlock`, `iov_lock_query`.

use std::ffi::c_int;

use ioverbs::Op;

use crate::{
    abi,
    arg::In,
    convert,
    guard::guard,
    object::{BatchHandle, CollectionHandle},
    out::OutStruct,
    pending::Pending,
    submit::{Submission, submit},
};

/// Takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn iov_lock(b: BatchHandle, c: CollectionHandle, lock: In<abi::LockAttr>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let lock = convert::lock(&lock.required()?, c.owner)?;
        let collection = c.usable()?;
        if lock.owner == c.owner {
            c.asked_for_lock();
        }
        submit(b, Submission::new(&c.cx, Op::Lock { c: collection, lock }))
    })
}

/// Gives a lock back.
#[unsafe(no_mangle)]
pub extern "C" fn iov_unlock(b: BatchHandle, c: CollectionHandle, lock: In<abi::LockAttr>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let lock = convert::lock(&lock.required()?, c.owner)?;
        submit(b, Submission::new(&c.cx, Op::Unlock { c: c.usable()?, lock }))
    })
}

/// Finds a lock in the way.
#[unsafe(no_mangle)]
pub extern "C" fn iov_lock_query(
    b: BatchHandle,
    c: CollectionHandle,
    lock: In<abi::LockAttr>,
    found: OutStruct<abi::LockAttr>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let lock = convert::lock(&lock.required()?, c.owner)?;
        let found = found.place()?;
        submit(b, Submission::with(&c.cx, Op::LockQuery { c: c.usable()?, lock }, Pending::Lock(found)))
    })
}
