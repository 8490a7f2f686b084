//! What a page needs beyond the comment of its function, because the header is read from top to bottom and a page is not.

/// A remark on one function.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    /// The function.
    pub function: &'static str,
    /// A line for NAME, where the first words of the comment mean little by themselves.
    pub summary: Option<&'static str>,
    /// The function whose comment this one goes on from.
    pub follows: Option<&'static str>,
    /// What it returns, where that is not 0 or an error.
    pub returns: Option<&'static str>,
}

const fn follow(function: &'static str, follows: &'static str, summary: &'static str) -> Note {
    Note { function, summary: Some(summary), follows: Some(follows), returns: None }
}

const fn name(function: &'static str, summary: &'static str) -> Note {
    Note { function, summary: Some(summary), follows: None, returns: None }
}

const fn result(function: &'static str, summary: &'static str, returns: &'static str) -> Note {
    Note { function, summary: Some(summary), follows: None, returns: Some(returns) }
}

/// All notes. A test sees to it that the functions exist.
pub const NOTES: &[Note] = &[
    result("iov_version", "the version of the library at run time", "The text; it lives as long as the process."),
    result("iov_strerror", "a sentence for an error code", "The text; it lives as long as the process."),
    result(
        "iov_error_detail",
        "what this thread's last failed call has to say",
        "The text; it lives until the thread's next failure.",
    ),
    follow("iov_error_last", "iov_error_detail", "the thread's last failure with outcome and clause"),
    name("iov_uuid_parse", "reads the text form of a UUID"),
    name("iov_uuid_format", "writes the text form of a UUID"),
    result(
        "iov_event_fd",
        "a descriptor that is readable when iov_poll has work",
        "The descriptor, or a negative iov_error.",
    ),
    name("iov_poll", "drives a session and reports completed requests"),
    follow("iov_handle_import", "iov_handle_export", "opens a handle that another process has exported"),
    name("iov_controls_init", "unsets all controls"),
    name("iov_controls_profile", "sets controls from a named profile"),
    name("iov_controls_parse", "sets controls from a text"),
    follow("iov_controls_format", "iov_controls_parse", "writes controls as a text"),
    name("iov_controls_check", "asks which controls a create would be granted"),
    name("iov_controls_effective", "the controls that a handle was granted"),
    result("iov_metadata_new", "an empty set of metadata pairs", "The set; NULL if memory is short."),
    name("iov_metadata_set_str", "set a metadata pair in memory"),
    result("iov_metadata_count", "the number of metadata pairs in a set", "The number."),
    name("iov_metadata_next", "steps through a set of metadata pairs"),
    name("iov_metadata_find", "the value of one key of a set of metadata pairs"),
    name("iov_metadata_get", "reads one metadata value of a collection or group"),
    name("iov_metadata_put", "adds or replaces metadata of a collection or group"),
    name("iov_metadata_remove", "removes one metadata pair of a collection or group"),
    name("iov_metadata_list", "reads all user metadata of a collection or group"),
    name("iov_workspace_load", "opens an existing workspace"),
    name("iov_workspace_close", "ends a workspace handle"),
    name("iov_workspace_stat", "reads usage, quota and expiry of a workspace"),
    name("iov_workspace_set", "changes properties of a workspace"),
    name("iov_workspace_commit", "publishes creates, deletes, renames and puts"),
    follow("iov_workspace_persist", "iov_workspace_commit", "makes the changes of a session in a workspace survive"),
    name("iov_collection_close", "commits, persists, and ends a collection handle"),
    name("iov_collection_delete", "removes a name, and with its last name a collection"),
    name("iov_collection_stat", "reads the facts of a collection or group"),
    name("iov_collection_set", "changes controls or layout of a collection"),
    name("iov_collection_layout", "copies the layout of a collection"),
    name("iov_setattr", "sets owner, mode or mtime of a collection"),
    name("iov_rename", "moves a name"),
    name("iov_group_list", "lists the names in a group"),
    name("iov_cursor_next", "takes search results"),
    name("iov_cursor_count", "the number of matches of a search"),
    name("iov_cursor_close", "ends a search"),
    name("iov_write", "writes to a collection"),
    name("iov_read", "reads from a collection"),
    name("iov_writev", "writes several chunks as one request"),
    name("iov_readv", "reads several chunks as one request"),
    name("iov_append", "adds one record at the end of a collection"),
    name("iov_truncate", "cuts or extends a collection"),
    name("iov_punch", "makes a range of a collection a hole"),
    name("iov_allocate", "reserves space for a range of a collection"),
    name("iov_extents", "lists data and holes of a collection"),
    name("iov_copy", "copies between collections within the store"),
    name("iov_commit", "makes what was written visible to others"),
    name("iov_persist", "makes what was written survive"),
    name("iov_seal", "fixes bytes and size of a collection for good"),
    name("iov_lock", "takes an advisory lock on a range"),
    follow("iov_unlock", "iov_lock", "gives advisory locks back"),
    follow("iov_lock_query", "iov_lock", "finds a lock that stands in the way of another"),
    name("iov_batch_create", "makes an empty batch"),
    name("iov_batch_barrier", "orders what is before it in a batch against what is after it"),
    result("iov_batch_count", "the number of operations in a batch", "The number."),
    name("iov_explain", "the plan of a batch as JSON"),
    name("iov_batch_start", "starts a batch"),
    name("iov_batch_status", "how one operation of a batch ended"),
    result(
        "iov_wait",
        "drives a request until it completes",
        "0 if every operation is ok, otherwise a negative iov_error; the rule quoted above says which.",
    ),
    result(
        "iov_test",
        "asks whether a request has completed",
        "0 if it has not completed; else what iov_wait would return. A negative iov_error also if the call is wrong.",
    ),
    name("iov_cancel", "asks a request to give up what has not taken effect"),
    name("iov_buffer_alloc", "allocates memory that is moved without a copy"),
    follow("iov_buffer_free", "iov_buffer_alloc", "frees memory from iov_buffer_alloc"),
    follow("iov_buffer_register", "iov_buffer_alloc", "prepares memory of the caller to be moved without a copy"),
    follow("iov_buffer_unregister", "iov_buffer_register", "ends the registration of a buffer"),
    name("iov_view", "shows stored bytes in place, without a copy"),
    follow("iov_view_release", "iov_view", "ends a view"),
    name("iov_segment_create", "makes a segment: bytes with an id instead of a name"),
    name("iov_segment_remove", "removes a segment"),
    name("iov_segment_put", "stores bytes in a segment"),
    name("iov_segment_get", "reads bytes of a segment"),
    name("iov_segment_write", "stores bytes in an endless space of blocks"),
    name("iov_segment_read", "reads bytes of an endless space of blocks"),
    name("iov_segment_size", "tells the length of a segment"),
    name("iov_collection_open_segment", "opens a segment as a collection"),
    name("iov_backend_import", "makes a backend that the program has linked in known by a name"),
    result("iov_backend_ops_v1", "the entry of a backend that is loaded at run time", "The table of the backend."),
];

/// The note on a function, if there is one.
pub fn on(function: &str) -> Option<&'static Note> {
    NOTES.iter().find(|n| n.function == function)
}
