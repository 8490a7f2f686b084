//! Memory without copies: `iov_buffer_*`, `iov_view` and `iov_view_release`.

mod buffers;
mod mapping;

use std::ffi::{c_int, c_void};

use ioverbs::{Error, Result, Viewed};

use crate::{
    abi::{self, flag},
    arg::{In, flags, reserved},
    guard::{guard, guard_value},
    object::{CollectionHandle, SessionHandle, ViewHandle, register},
    out::{CMemory, Out},
};

pub(crate) use buffers::{Buffers, Uses};
use mapping::Mapping;

/// `void *` of a buffer: compared, and given back to the system, but never read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Address(*mut c_void);

impl Address {
    /// Any address: whether it is a buffer's shows when it is used.
    pub fn new(p: *mut c_void) -> Self {
        Address(p)
    }
}

/// Checks an attribute, of memory of this host as all others are beyond this release; returns node and alignment.
fn host_memory(attr: Option<abi::BufferAttr>) -> Result<(Option<u32>, usize)> {
    let page = mapping::page_size();
    let Some(attr) = attr else { return Ok((None, page)) };
    reserved("iov_buffer_attr", &attr.reserved0.to_ne_bytes())?;
    let on_node = flags(attr.flags, flag::BUFFER_ON_NODE, "iov_buffer_attr.flags")? != 0;
    let kind = match attr.memory {
        0 => None,
        1 => Some("CUDA"),
        2 => Some("HIP"),
        3 => Some("Level Zero"),
        n => return Err(Error::invalid(format!("iov_buffer_attr.memory is {n}, none of IOV_MEMORY_*"))),
    };
    if let Some(kind) = kind {
        let why = format!("this release moves no bytes from or to {kind} memory: copy them to host memory first");
        return Err(Error::unsupported(why));
    }
    if attr.device != 0 {
        return Err(Error::invalid("iov_buffer_attr.device is set, but host memory is on no device"));
    }
    if attr.numa_node != 0 && !on_node {
        return Err(Error::invalid("iov_buffer_attr.numa_node is set without the flag IOV_BUFFER_ON_NODE"));
    }
    let alignment = match attr.alignment {
        0 => page as u64,
        n if n.is_power_of_two() && n <= 1 << 40 => n,
        n => return Err(Error::invalid(format!("iov_buffer_attr.alignment is {n}: it is a power of two up to 2^40"))),
    };
    Ok((on_node.then_some(attr.numa_node), alignment as usize))
}

/// Allocates a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn iov_buffer_alloc(
    s: SessionHandle,
    len: usize,
    attr: In<abi::BufferAttr>,
    out: Out<CMemory>,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.required("out")?;
        let (node, alignment) = host_memory(attr.read()?)?;
        if len == 0 {
            return Err(Error::invalid("a buffer of no bytes"));
        }
        let mapping = Mapping::new(len, alignment, node)?;
        let p = mapping.address();
        session.cx.buffers.add(p, len, Some(mapping))?;
        out.write(p as CMemory);
        Ok(())
    })
}

/// Frees a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn iov_buffer_free(s: SessionHandle, p: Address) -> c_int {
    guard(|| {
        let session = s.get()?;
        if p.0.is_null() {
            return Ok(());
        }
        session.cx.buffers.remove(p.0 as usize, true)
    })
}

/// Registers memory of the program.
#[unsafe(no_mangle)]
pub extern "C" fn iov_buffer_register(s: SessionHandle, p: Address, len: usize, attr: In<abi::BufferAttr>) -> c_int {
    guard(|| {
        let session = s.get()?;
        let attr = attr.read()?;
        let asked = attr.map_or(0, |a| a.alignment) as usize;
        let (node, _) = host_memory(attr)?;
        if p.0.is_null() || len == 0 {
            return Err(Error::invalid("there is no memory to register: the pointer is NULL or the length 0"));
        }
        if node.is_some() {
            return Err(Error::invalid(
                "memory of the program stays on its node: IOV_BUFFER_ON_NODE is for iov_buffer_alloc",
            ));
        }
        if asked != 0 && !(p.0 as usize).is_multiple_of(asked) {
            return Err(Error::invalid(format!("{:p} is not aligned to {asked} bytes, as the attribute says", p.0)));
        }
        session.cx.buffers.add(p.0 as usize, len, None)
    })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn iov_buffer_unregister(s: SessionHandle, p: Address) -> c_int {
    guard(|| s.get()?.cx.buffers.remove(p.0 as usize, false))
}

/// What a view lease keeps: pinned bytes.
pub struct ViewObject {
    _pinned: Viewed,
}

/// Shows stored bytes in place.
#[unsafe(no_mangle)]
pub extern "C" fn iov_view(
    c: CollectionHandle,
    offset: u64,
    len: usize,
    out: Out<CMemory>,
    got: Out<usize>,
    lease: Out<ViewHandle>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = out.required("out")?;
        let got = got.required("got")?;
        let lease = lease.required("lease")?;
        let viewed = c.data()?.view(offset, len as u64)?;
        let (address, shown) = (viewed.as_ptr(), viewed.len());
        let handle = register(ViewObject { _pinned: viewed })?;
        out.write(address as CMemory);
        got.write(shown);
        lease.write(handle);
        Ok(())
    })
}

/// Ends a view.
#[unsafe(no_mangle)]
pub extern "C" fn iov_view_release(lease: ViewHandle) {
    guard_value((), || if lease.is_null() { Ok(()) } else { lease.end().map(drop) })
}
