//! The C ABI as a C program sees it: the declarations of `ioverbs.h` that the benchmark needs, and thin wrappers.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    ptr::{null, null_mut},
};

use anyhow::{Result, bail};
// Links the symbols.
use ioverbs_capi as _;
use serde_json::{Map, Value, json};

type Handle = *mut c_void;

unsafe extern "C" {
    fn iov_open(url: *const c_char, attr: *const c_void, out: *mut Handle) -> i32;
    fn iov_close(s: Handle) -> i32;
    fn iov_error_detail() -> *const c_char;
    fn iov_workspace_create(s: Handle, name: *const c_char, attr: *const c_void, out: *mut Handle) -> i32;
    fn iov_workspace_load(s: Handle, name: *const c_char, out: *mut Handle) -> i32;
    fn iov_metadata_new() -> Handle;
    fn iov_metadata_free(md: Handle);
    fn iov_metadata_set_str(md: Handle, key: *const c_char, value: *const c_char) -> i32;
    fn iov_metadata_set_i64(md: Handle, key: *const c_char, value: i64) -> i32;
    fn iov_controls_init(c: *mut c_void, size: usize);
    fn iov_controls_parse(c: *mut c_void, text: *const c_char) -> i32;
    fn iov_collection_create(
        b: Handle,
        w: Handle,
        group: Handle,
        name: *const c_char,
        md: Handle,
        controls: *const c_void,
        out: *mut Handle,
    ) -> i32;
    fn iov_collection_lookup(
        b: Handle,
        w: Handle,
        group: Handle,
        name: *const c_char,
        controls: *const c_void,
        out: *mut Handle,
    ) -> i32;
    fn iov_collection_stat(b: Handle, c: Handle, out: *mut c_void) -> i32;
    fn iov_collection_close(b: Handle, c: Handle) -> i32;
    fn iov_collection_delete(b: Handle, w: Handle, group: Handle, name: *const c_char) -> i32;
    fn iov_collection_search(
        b: Handle,
        w: Handle,
        predicate: *const c_char,
        attr: *const c_void,
        out: *mut Handle,
    ) -> i32;
    fn iov_cursor_next(cur: Handle, out: *mut c_void, max: usize, n: *mut usize, timeout_ns: i64) -> i32;
    fn iov_cursor_close(cur: Handle) -> i32;
    fn iov_write(b: Handle, c: Handle, offset: u64, buf: *const c_void, len: usize) -> i32;
    fn iov_read(b: Handle, c: Handle, offset: u64, buf: *mut c_void, len: usize, got: *mut usize) -> i32;
    fn iov_view(
        c: Handle,
        offset: u64,
        len: usize,
        out: *mut *const c_void,
        got: *mut usize,
        lease: *mut Handle,
    ) -> i32;
    fn iov_view_release(lease: Handle);
    fn iov_batch_create(s: Handle, attr: *const c_void, out: *mut Handle) -> i32;
    fn iov_batch_start(b: Handle, out: *mut Handle) -> i32;
    fn iov_batch_reset(b: Handle) -> i32;
    fn iov_batch_free(b: Handle) -> i32;
    fn iov_wait(r: Handle, timeout_ns: i64) -> i32;
    fn iov_request_free(r: Handle) -> i32;
    fn iov_session_counters(s: Handle, out: *mut c_void) -> i32;
}

fn check(code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: never NULL, valid until the thread's next failure.
    let detail = unsafe { CStr::from_ptr(iov_error_detail()) };
    bail!("error {code}: {}", detail.to_string_lossy())
}

fn text(s: &str) -> CString {
    CString::new(s).unwrap_or_default()
}

/// Room for a struct of the header that begins with its size, in bytes (here all are smaller).
const STRUCT: usize = 512;

/// Bytes of `iov_stat` and of the first part of `iov_entry` as of version 0.1.
const STAT_SIZE: u32 = 144;
const ENTRY_SIZE: u32 = 56;
const COUNTERS_SIZE: u32 = 240;
const SESSION_ATTR_SIZE: u32 = 48;

/// A flag of a session: without grants, so that all bytes go through the daemon.
pub(crate) const NODIRECT: u32 = 2;

fn sized(size: u32) -> [u64; STRUCT / 8] {
    let mut bytes = [0u64; STRUCT / 8];
    bytes[0] = u64::from(size);
    bytes
}

/// A session.
#[derive(Clone, Copy)]
pub(crate) struct Session(Handle);
/// A workspace.
pub(crate) struct Workspace(Handle);
/// A collection.
#[derive(Clone, Copy)]
pub(crate) struct Collection(Handle);
/// A batch and the session's counters.
pub(crate) struct Batch(Handle);

/// Metadata of a created collection.
pub(crate) struct Metadata(Handle);

/// Controls as the C struct.
pub(crate) struct Controls([u64; STRUCT / 8]);

impl Controls {
    pub(crate) fn parse(controls: &str) -> Result<Controls> {
        let mut out = Controls(sized(0));
        let size = 128;
        // SAFETY: `out` is larger than the struct; the text outlives the call.
        check(unsafe {
            iov_controls_init(out.0.as_mut_ptr().cast(), size);
            iov_controls_parse(out.0.as_mut_ptr().cast(), text(controls).as_ptr())
        })?;
        Ok(out)
    }
}

impl Metadata {
    pub(crate) fn new(pairs: &[(&str, i64)], strings: &[(&str, &str)]) -> Result<Metadata> {
        // SAFETY: texts outlive the calls; the set is freed on drop.
        unsafe {
            let md = Metadata(iov_metadata_new());
            for (k, v) in pairs {
                check(iov_metadata_set_i64(md.0, text(k).as_ptr(), *v))?;
            }
            for (k, v) in strings {
                check(iov_metadata_set_str(md.0, text(k).as_ptr(), text(v).as_ptr()))?;
            }
            Ok(md)
        }
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        // SAFETY: made by iov_metadata_new, freed once.
        unsafe { iov_metadata_free(self.0) };
    }
}

impl Session {
    pub(crate) fn open(url: &str) -> Result<Session> {
        Session::open_with(url, 0)
    }

    /// With flags of `iov_session_attr`.
    pub(crate) fn open_with(url: &str, flags: u32) -> Result<Session> {
        let mut out = null_mut();
        let mut attr = sized(SESSION_ATTR_SIZE);
        // The second half of the first word.
        attr[0] |= u64::from(flags) << 32;
        // SAFETY: the text and the struct outlive the call; the struct's zeros are defaults.
        check(unsafe { iov_open(text(url).as_ptr(), attr.as_ptr().cast(), &mut out) })?;
        Ok(Session(out))
    }

    /// Makes the workspace, or opens it if it is there; `indexes` through the Rust API, since it is set-up.
    pub(crate) fn workspace(&self, name: &str) -> Result<Workspace> {
        let mut out = null_mut();
        // SAFETY: the texts outlive the calls.
        unsafe {
            if iov_workspace_load(self.0, text(name).as_ptr(), &mut out) != 0 {
                check(iov_workspace_create(self.0, text(name).as_ptr(), null(), &mut out))?;
            }
        }
        Ok(Workspace(out))
    }

    pub(crate) fn batch(&self) -> Result<Batch> {
        let mut out = null_mut();
        // SAFETY: out is live.
        check(unsafe { iov_batch_create(self.0, null(), &mut out) })?;
        Ok(Batch(out))
    }

    /// Counters by name, in the order of the header.
    pub(crate) fn counters(&self) -> Result<Vec<(String, u64)>> {
        let mut out = sized(COUNTERS_SIZE);
        // SAFETY: `out` is larger than its size field says.
        check(unsafe { iov_session_counters(self.0, out.as_mut_ptr().cast()) })?;
        Ok(ioverbs::Counters::NAMES.iter().zip(&out[1..]).map(|(n, v)| ((*n).to_owned(), *v)).collect())
    }

    /// Those that have grown, and by how much.
    pub(crate) fn grown(&self, before: &[(String, u64)]) -> Result<Map<String, Value>> {
        let both = self.counters()?.into_iter().zip(before);
        let grown = both.filter(|((_, now), (_, old))| now > old);
        Ok(grown.map(|((name, now), (_, old))| (name, json!(now - old))).collect())
    }

    pub(crate) fn close(self) -> Result<()> {
        // SAFETY: a live handle, closed once.
        check(unsafe { iov_close(self.0) })
    }
}

/// No batch: the call blocks.
pub(crate) const NOW: Batch = Batch(null_mut());

impl Workspace {
    pub(crate) fn create(
        &self,
        b: &Batch,
        name: &CStr,
        md: Option<&Metadata>,
        controls: Option<&Controls>,
    ) -> Result<Collection> {
        let mut out = null_mut();
        let md = md.map_or(null_mut(), |m| m.0);
        let controls = controls.map_or(null(), |c| c.0.as_ptr().cast());
        // SAFETY: all handles are live; texts are copied by the call.
        check(unsafe { iov_collection_create(b.0, self.0, null_mut(), name.as_ptr(), md, controls, &mut out) })?;
        Ok(Collection(out))
    }

    pub(crate) fn lookup(&self, b: &Batch, name: &CStr) -> Result<Collection> {
        let mut out = null_mut();
        // SAFETY: as above.
        check(unsafe { iov_collection_lookup(b.0, self.0, null_mut(), name.as_ptr(), null(), &mut out) })?;
        Ok(Collection(out))
    }

    pub(crate) fn delete(&self, b: &Batch, name: &CStr) -> Result<()> {
        // SAFETY: as above.
        check(unsafe { iov_collection_delete(b.0, self.0, null_mut(), name.as_ptr()) })
    }

    /// Runs a search and takes up to `max` results (0 = all); how many there were.
    pub(crate) fn search(&self, predicate: &str, max: usize) -> Result<usize> {
        let mut cursor = null_mut();
        let mut total = 0;
        let page = if max == 0 { 1024 } else { max.min(1024) };
        let mut entries = vec![0u64; page * ENTRY_SIZE as usize / 8];
        entries[0] = u64::from(ENTRY_SIZE);
        // SAFETY: the array has room for `page` entries of the size that its first element says.
        unsafe {
            check(iov_collection_search(null_mut(), self.0, text(predicate).as_ptr(), null(), &mut cursor))?;
            loop {
                let mut n = 0;
                check(iov_cursor_next(cursor, entries.as_mut_ptr().cast(), page, &mut n, -1))?;
                total += n;
                if n == 0 || (max != 0 && total >= max) {
                    break;
                }
            }
            check(iov_cursor_close(cursor))?;
        }
        Ok(total)
    }
}

impl Collection {
    pub(crate) fn stat(self, b: &Batch, out: &mut Stat) -> Result<()> {
        out.0[0] = u64::from(STAT_SIZE);
        // SAFETY: `out` is larger than its size field says and lives until the batch has completed.
        check(unsafe { iov_collection_stat(b.0, self.0, out.0.as_mut_ptr().cast()) })
    }

    pub(crate) fn close(self, b: &Batch) -> Result<()> {
        // SAFETY: a live handle, closed once.
        check(unsafe { iov_collection_close(b.0, self.0) })
    }

    pub(crate) fn write(self, offset: u64, data: &[u8]) -> Result<()> {
        // SAFETY: blocking; the slice outlives the call.
        check(unsafe { iov_write(null_mut(), self.0, offset, data.as_ptr().cast(), data.len()) })
    }

    pub(crate) fn read(self, offset: u64, data: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        // SAFETY: blocking; the slice outlives the call.
        check(unsafe { iov_read(null_mut(), self.0, offset, data.as_mut_ptr().cast(), data.len(), &mut got) })?;
        Ok(got)
    }

    /// Shows bytes in place, looks at the first and the last of them, and lets them go.
    pub(crate) fn view(self, offset: u64, len: usize, expected: u8) -> Result<()> {
        let (mut shown, mut got, mut lease) = (null(), 0, null_mut());
        // SAFETY: the view is looked at before its lease ends.
        let ends = unsafe {
            check(iov_view(self.0, offset, len, &mut shown, &mut got, &mut lease))?;
            let shown = shown.cast::<u8>();
            let ends = (got == len).then(|| (*shown, *shown.add(len - 1)));
            iov_view_release(lease);
            ends
        };
        if ends != Some((expected, expected)) {
            bail!("a view of {got} bytes showed others than were written");
        }
        Ok(())
    }
}

/// Room for the facts of one collection.
#[derive(Clone, Default)]
pub(crate) struct Stat([u64; 20]);

impl Batch {
    /// Writes the same bytes `times` in a row from `at` on, all at once.
    pub(crate) fn write(&self, to: Collection, at: u64, data: &[u8], times: u64) -> Result<()> {
        self.run_after(self.append(to, at, data, times))
    }

    /// Reads what begins at `at` by requests of `len` bytes, all at once.
    pub(crate) fn read(&self, from: Collection, at: u64, out: &mut [u8], len: usize) -> Result<()> {
        let mut parts = out.chunks_exact_mut(len).zip((at..).step_by(len));
        let read = |(part, offset): (&mut [u8], u64)| {
            // SAFETY: the slice is borrowed until all has completed; no two parts overlap.
            check(unsafe { iov_read(self.0, from.0, offset, part.as_mut_ptr().cast(), len, null_mut()) })
        };
        self.run_after(parts.try_for_each(read))
    }

    /// Runs it if all of it could be appended, and else forgets the part that was.
    fn run_after(&self, appended: Result<()>) -> Result<()> {
        if appended.is_err() {
            // SAFETY: a live handle, of a batch that has not been started.
            unsafe { iov_batch_reset(self.0) };
        }
        appended.and_then(|()| self.run())
    }

    /// Starts it, waits, and empties it for the next use.
    pub(crate) fn run(&self) -> Result<()> {
        self.start()?.wait(self)
    }

    /// Appends the write of the same bytes `times` in a row from `at` on. They must stay until it has run.
    pub(crate) fn append(&self, to: Collection, at: u64, data: &[u8], times: u64) -> Result<()> {
        let mut offsets = (0..times).map(|i| at + i * data.len() as u64);
        // SAFETY: what is only appended touches nothing; the caller holds the bytes.
        offsets
            .try_for_each(|offset| check(unsafe { iov_write(self.0, to.0, offset, data.as_ptr().cast(), data.len()) }))
    }

    /// Starts it. Buffers of its operations are to be held until it has been waited for.
    pub(crate) fn start(&self) -> Result<Started> {
        let mut request = null_mut();
        // SAFETY: a live handle.
        check(unsafe { iov_batch_start(self.0, &mut request) })?;
        Ok(Started(request))
    }
}

/// A batch under way.
pub(crate) struct Started(Handle);

impl Started {
    /// Waits for it, and empties its batch for the next use.
    pub(crate) fn wait(self, batch: &Batch) -> Result<()> {
        // SAFETY: live handles.
        unsafe {
            check(iov_wait(self.0, -1))?;
            check(iov_request_free(self.0))?;
            check(iov_batch_reset(batch.0))
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: a live handle or NULL; a batch in flight is refused, and ends with the process.
        unsafe { iov_batch_free(self.0) };
    }
}
