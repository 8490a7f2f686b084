//! The functions of `ioverbs.h` as a program sees them, every pointer as a number so that it can be anything.
//!
//! One table gives each function its parameters by what they mean; `call` makes arguments for them.

use super::{
    arguments::{Arguments, Kind as K},
    structs::Shape,
};
// The library is linked because the test names its crate.
use ioverbs_capi as _;

/// Whether a number is what a function may return.
pub(super) type Check = fn(i64) -> bool;

/// One function.
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Makes arguments and calls it; returns what it returned.
    pub(super) call: fn(&mut Arguments<'_>) -> i64,
    pub(super) check: Check,
}

/// 0 or a negative error of the header; never "a defect of the library".
fn code(n: i64) -> bool {
    n == 0 || ((-1089..=-1010).contains(&n) && ioverbs::Kind::from_code(n as i32).is_some())
}

fn code_or_descriptor(n: i64) -> bool {
    n >= 0 || code(n)
}

fn anything(_: i64) -> bool {
    true
}

macro_rules! argument {
    ($args:ident, (handle $kind:ident)) => {
        $args.handle(K::$kind)
    };
    ($args:ident, (new $kind:ident)) => {
        $args.out_handle(K::$kind)
    };
    ($args:ident, ($shape:ident)) => {
        $args.structure(Shape::$shape)
    };
    ($args:ident, int) => {
        $args.number() as i32
    };
    ($args:ident, float) => {
        f64::from_bits($args.number())
    };
    ($args:ident, $what:ident) => {
        $args.$what()
    };
}

macro_rules! parameter {
    (offset) => {
        u64
    };
    (number) => {
        u64
    };
    (int) => {
        i32
    };
    (flags) => {
        u32
    };
    (wait) => {
        i64
    };
    (short_wait) => {
        i64
    };
    (float) => {
        f64
    };
    ($other:tt) => {
        usize
    };
}

/// What a function returns, as a number.
trait Returned {
    fn number(self) -> i64;
}

impl Returned for i32 {
    fn number(self) -> i64 {
        i64::from(self)
    }
}

impl Returned for usize {
    fn number(self) -> i64 {
        self as i64
    }
}

impl Returned for () {
    fn number(self) -> i64 {
        0
    }
}

/// Declares the functions, and makes the table of calls.
macro_rules! list {
    ($($name:ident($($argument:ident: $parameter:tt),*) -> $result:ty, $check:ident;)*) => {
        unsafe extern "C" {
            $(fn $name($($argument: parameter!($parameter)),*) -> $result;)*
        }

        /// Every function of the header but `iov_log_set`, which takes a function.
        pub(super) const FUNCTIONS: &[Function] = &[$(
            Function {
                name: stringify!($name),
                call: |args| {
                    let _ = &args;
                    $(let $argument = argument!(args, $parameter);)*
                    // SAFETY: the arguments are what `Arguments` promises: wrong handles and numbers at will, but
                    // pointers that are NULL, misaligned, or lead to memory of the test that stays.
                    unsafe { $name($($argument),*).number() }
                },
                check: $check,
            },
        )*];
    };
}

list! {
    iov_version() -> usize, anything;
    iov_strerror(a: int) -> usize, anything;
    iov_error_detail() -> usize, anything;
    iov_error_last(a: (Status)) -> i32, code;
    iov_uuid_new(a: out) -> i32, code;
    iov_uuid_parse(a: text, b: out) -> i32, code;
    iov_uuid_format(a: out, b: out) -> i32, code;
    iov_open(a: url, b: (SessionAttr), c: (new Session)) -> i32, code;
    iov_close(a: (handle Session)) -> i32, code;
    iov_session_counters(a: (handle Session), b: (Counters)) -> i32, code;
    iov_event_fd(a: (handle Session)) -> i32, code_or_descriptor;
    iov_poll(a: (handle Session), b: (Completion), c: count, d: out, e: short_wait) -> i32, code;
    iov_handle_export(a: (Handle), b: passport, c: len, d: passport_needed) -> i32, code;
    iov_handle_import(a: (handle Session), b: passport, c: passport_len, d: (Handle)) -> i32, code;
    iov_controls_init(a: (Controls), b: len) -> (), anything;
    iov_controls_profile(a: (Controls), b: controls_text) -> i32, code;
    iov_controls_parse(a: (Controls), b: controls_text) -> i32, code;
    iov_controls_format(a: (Controls), b: data, c: len, d: out) -> i32, code;
    iov_controls_check(a: (handle Session), b: (handle Workspace), c: (Controls), d: (Controls)) -> i32, code;
    iov_controls_effective(a: (handle Collection), b: (Controls)) -> i32, code;
    iov_metadata_new() -> usize, anything;
    iov_metadata_free(a: (handle Metadata)) -> (), anything;
    iov_metadata_set_str(a: (handle Metadata), b: text, c: text) -> i32, code;
    iov_metadata_set_i64(a: (handle Metadata), b: text, c: offset) -> i32, code;
    iov_metadata_set_f64(a: (handle Metadata), b: text, c: float) -> i32, code;
    iov_metadata_set_bool(a: (handle Metadata), b: text, c: int) -> i32, code;
    iov_metadata_set_bytes(a: (handle Metadata), b: text, c: data, d: len) -> i32, code;
    iov_metadata_set_time(a: (handle Metadata), b: text, c: offset) -> i32, code;
    iov_metadata_count(a: (handle Metadata)) -> usize, anything;
    iov_metadata_next(a: (handle Metadata), b: out, c: out, d: (Value)) -> i32, code;
    iov_metadata_find(a: (handle Metadata), b: text, c: (Value)) -> i32, code;
    iov_metadata_get(a: (handle Batch), b: (handle Collection), c: text, d: (Value)) -> i32, code;
    iov_metadata_put(a: (handle Batch), b: (handle Collection), c: (handle Metadata)) -> i32, code;
    iov_metadata_remove(a: (handle Batch), b: (handle Collection), c: text) -> i32, code;
    iov_metadata_list(a: (handle Batch), b: (handle Collection), c: (new Metadata)) -> i32, code;
    iov_workspace_create(a: (handle Session), b: name, c: (WorkspaceAttr), d: (new Workspace)) -> i32, code;
    iov_workspace_load(a: (handle Session), b: name, c: (new Workspace)) -> i32, code;
    iov_workspace_search(a: (handle Session), b: predicate, c: (SearchAttr), d: (new Cursor)) -> i32, code;
    iov_workspace_close(a: (handle Workspace)) -> i32, code;
    iov_workspace_delete(a: (handle Session), b: name) -> i32, code;
    iov_workspace_stat(a: (handle Batch), b: (handle Workspace), c: (Stat)) -> i32, code;
    iov_workspace_set(a: (handle Batch), b: (handle Workspace), c: (WorkspaceAttr)) -> i32, code;
    iov_workspace_rename(a: (handle Batch), b: (handle Workspace), c: name) -> i32, code;
    iov_workspace_commit(a: (handle Batch), b: (handle Workspace)) -> i32, code;
    iov_workspace_persist(a: (handle Batch), b: (handle Workspace)) -> i32, code;
    iov_collection_create(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name, e: (handle Metadata),
        f: (Controls), g: (new Collection)) -> i32, code;
    iov_collection_lookup(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name, e: (Controls),
        f: (new Collection)) -> i32, code;
    iov_collection_search(a: (handle Batch), b: (handle Workspace), c: predicate, d: (SearchAttr), e: (new Cursor))
        -> i32, code;
    iov_collection_close(a: (handle Batch), b: (handle Collection)) -> i32, code;
    iov_collection_delete(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name) -> i32, code;
    iov_collection_stat(a: (handle Batch), b: (handle Collection), c: (Stat)) -> i32, code;
    iov_collection_set(a: (handle Batch), b: (handle Collection), c: (Controls), d: (Layout)) -> i32, code;
    iov_collection_layout(a: (handle Collection), b: (Layout)) -> i32, code;
    iov_setattr(a: (handle Batch), b: (handle Collection), c: (Attr)) -> i32, code;
    iov_rename(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name, e: (handle Group), f: name,
        g: flags) -> i32, code;
    iov_link(a: (handle Batch), b: (handle Collection), c: (handle Group), d: name) -> i32, code;
    iov_group_create(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name, e: (handle Metadata),
        f: (Controls), g: (new Group)) -> i32, code;
    iov_group_lookup(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: name, e: (Controls), f: (new Group))
        -> i32, code;
    iov_group_list(a: (handle Batch), b: (handle Workspace), c: (handle Group), d: (SearchAttr), e: (new Cursor))
        -> i32, code;
    iov_cursor_next(a: (handle Cursor), b: (Entry), c: count, d: out, e: wait) -> i32, code;
    iov_cursor_count(a: (handle Cursor), b: out, c: wait) -> i32, code;
    iov_cursor_close(a: (handle Cursor)) -> i32, code;
    iov_write(a: (handle Batch), b: (handle Collection), c: offset, d: data, e: len) -> i32, code;
    iov_read(a: (handle Batch), b: (handle Collection), c: offset, d: data, e: len, f: out) -> i32, code;
    iov_writev(a: (handle Batch), b: (handle Collection), c: (Chunks), d: many, e: out) -> i32, code;
    iov_readv(a: (handle Batch), b: (handle Collection), c: (Chunks), d: many, e: out) -> i32, code;
    iov_append(a: (handle Batch), b: (handle Collection), c: data, d: len, e: out) -> i32, code;
    iov_truncate(a: (handle Batch), b: (handle Collection), c: offset) -> i32, code;
    iov_punch(a: (handle Batch), b: (handle Collection), c: offset, d: offset) -> i32, code;
    iov_allocate(a: (handle Batch), b: (handle Collection), c: offset, d: offset, e: flags) -> i32, code;
    iov_extents(a: (handle Batch), b: (handle Collection), c: offset, d: offset, e: (Extents), f: count, g: out) -> i32, code;
    iov_copy(a: (handle Batch), b: (handle Collection), c: offset, d: (handle Collection), e: offset, f: offset, g: out)
        -> i32, code;
    iov_commit(a: (handle Batch), b: (handle Collection)) -> i32, code;
    iov_persist(a: (handle Batch), b: (handle Collection)) -> i32, code;
    iov_seal(a: (handle Batch), b: (handle Collection)) -> i32, code;
    iov_lock(a: (handle Batch), b: (handle Collection), c: (LockAttr)) -> i32, code;
    iov_unlock(a: (handle Batch), b: (handle Collection), c: (LockAttr)) -> i32, code;
    iov_lock_query(a: (handle Batch), b: (handle Collection), c: (LockAttr), d: (LockAttr)) -> i32, code;
    iov_batch_create(a: (handle Session), b: (BatchAttr), c: (new Batch)) -> i32, code;
    iov_batch_barrier(a: (handle Batch)) -> i32, code;
    iov_batch_count(a: (handle Batch)) -> usize, anything;
    iov_explain(a: (handle Batch), b: data, c: len, d: out) -> i32, code;
    iov_batch_start(a: (handle Batch), b: (new Request)) -> i32, code;
    iov_batch_status(a: (handle Batch), b: many, c: (Status)) -> i32, code;
    iov_batch_reset(a: (handle Batch)) -> i32, code;
    iov_batch_free(a: (handle Batch)) -> i32, code;
    iov_wait(a: (handle Request), b: wait) -> i32, code;
    iov_test(a: (handle Request), b: out) -> i32, code;
    iov_cancel(a: (handle Request)) -> i32, code;
    iov_request_free(a: (handle Request)) -> i32, code;
    iov_buffer_alloc(a: (handle Session), b: len, c: (BufferAttr), d: (new Buffer)) -> i32, code;
    iov_buffer_free(a: (handle Session), b: (handle Buffer)) -> i32, code;
    iov_buffer_register(a: (handle Session), b: data, c: len, d: (BufferAttr)) -> i32, code;
    iov_buffer_unregister(a: (handle Session), b: data) -> i32, code;
    iov_segment_create(a: (handle Workspace), b: offset, c: (Controls), d: out) -> i32, code;
    iov_segment_remove(a: (handle Workspace), b: out) -> i32, code;
    iov_segment_put(a: (handle Workspace), b: out, c: offset, d: data, e: len) -> i32, code;
    iov_segment_get(a: (handle Workspace), b: out, c: offset, d: data, e: len) -> i32, code;
    iov_segment_write(a: (handle Workspace), b: out, c: offset, d: data, e: len) -> i32, code;
    iov_segment_read(a: (handle Workspace), b: out, c: offset, d: data, e: len, f: out) -> i32, code;
    iov_segment_size(a: (handle Workspace), b: out, c: out) -> i32, code;
    iov_collection_open_segment(a: (handle Batch), b: (handle Workspace), c: out, d: (new Collection)) -> i32, code;
    iov_view(a: (handle Collection), b: offset, c: len, d: out, e: out, f: out) -> i32, code;
    iov_view_release(a: out) -> (), anything;
}
