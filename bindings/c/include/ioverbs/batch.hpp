/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file batch.hpp
 * @brief Batches: operations that start and complete together (O7).
 */
#ifndef IOVERBS_BATCH_HPP
#define IOVERBS_BATCH_HPP

#include "request.hpp"

namespace iov {

/**
 * A list of operations, started once as a whole. Appending does nothing yet and returns the operation's index, under
 * which status() tells later how it ended. One thread at a time.
 *
 *     iov::batch b(s, iov::on_error::rollback);
 *     b.write(a, 0, new_bytes);
 *     b.put_metadata(c, {{"state", "converged"}});
 *     b.run();                                        // all of it, or an exception and none of it
 *
 * Memory is lent until the request has completed: buffers, and everything that a pointer is passed for. Names, metadata
 * and controls are copied. Collections and groups have to stay open until then. What create, lookup and search return
 * is pending: for later operations of this batch, for all use once it has completed; if the operation failed, each use
 * throws its error (rule 2). A batch of which a request is in flight cannot be changed, reset or closed: BUSY. The
 * destructor cancels such a request and waits until it has completed; what was never started has no effect.
 */
class batch : public detail::batch_handle {
  public:
    /** An empty object, which is no batch. */
    batch() noexcept = default;
    /** Takes over a batch of ioverbs.h. */
    explicit batch(::iov_batch *handle) noexcept : batch_handle(handle) {}
    /** A batch without operations. INVALID, REFUSED (controls). */
    explicit batch(const session &s, const batch_options &options = {}) : batch(s.get(), options) {}
    /** The same for a session of ioverbs.h. */
    explicit batch(::iov_session *s, const batch_options &options = {}) {
        const ::iov_batch_attr attr = detail::batch_attr(options);
        ::iov_batch *out = nullptr;
        check(::iov_batch_create(s, &attr, &out));
        adopt(out);
    }

    /** The number of operations; barriers do not count. */
    std::size_t size() const noexcept { return ::iov_batch_count(get()); }
    /** Everything appended so far takes effect before everything appended from now on (O9). */
    void barrier() { check(::iov_batch_barrier(get())); }
    /** The plan as JSON, before it runs: what is buffered, sent, published, persisted. */
    std::string explain() const {
        return detail::written(
            [this](char *out, std::size_t cap, std::size_t *needed) { return ::iov_explain(get(), out, cap, needed); });
    }

    /** Starts it. The batch has to live as long as the request. REFUSED, TOOBIG (B4), BUSY: nothing was started. */
    [[nodiscard]] request start() & { return request(begin(), get(), batch_handle()); }
    /** The same for a batch that is not needed any more: the request keeps it. */
    [[nodiscard]] request start() && {
        ::iov_request *running = begin();
        ::iov_batch *const b = get();
        return request(running, b, std::move(*this));
    }
    /** Starts it and waits. PARTIAL: not every operation is ok, see status(); of a single one the error itself. */
    void run() { start().wait(); }
    /** How operation `index` ended; the texts live until reset. BUSY before completion, INVALID (index). */
    op_status status(std::size_t index) const { return detail::status_of(get(), index); }
    /** Empties a completed batch for another start; its id is used up. */
    void reset() { check(::iov_batch_reset(get())); }

    /** Creates a collection; see workspace::create. */
    [[nodiscard]] collection create(const place &where, const text &name, const iov::controls &asked = {},
                                    const metadata_view &pairs = {}) {
        ::iov_collection *out = nullptr;
        check(::iov_collection_create(need(), where.workspace(), where.group(), name.c_str(), pairs.get(),
                                      &asked.raw(), &out));
        return collection(out, where.session());
    }
    /** Opens a collection; see workspace::lookup. */
    [[nodiscard]] collection lookup(const place &where, const text &name_or_uuid, const iov::controls &asked = {}) {
        ::iov_collection *out = nullptr;
        check(::iov_collection_lookup(need(), where.workspace(), where.group(), name_or_uuid.c_str(), &asked.raw(),
                                      &out));
        return collection(out, where.session());
    }
    /** Creates a group. */
    [[nodiscard]] group create_group(const place &where, const text &name, const iov::controls &asked = {},
                                     const metadata_view &pairs = {}) {
        ::iov_collection *out = nullptr;
        check(::iov_group_create(need(), where.workspace(), where.group(), name.c_str(), pairs.get(), &asked.raw(),
                                 &out));
        return group(out, where);
    }
    /** Opens a group; nullptr = `where` itself. */
    [[nodiscard]] group lookup_group(const place &where, const text &name_or_uuid, const iov::controls &asked = {}) {
        ::iov_collection *out = nullptr;
        check(::iov_group_lookup(need(), where.workspace(), where.group(), name_or_uuid.c_str(), &asked.raw(), &out));
        return group(out, where);
    }
    /** Searches a workspace, or the members of a group. */
    [[nodiscard]] cursor search(const place &where, const text &predicate = nullptr, const search_options &o = {}) {
        const detail::search_attr attr(o, where.group());
        ::iov_cursor *out = nullptr;
        check(::iov_collection_search(need(), where.workspace(), predicate.c_str(), attr.get(), &out));
        return cursor(out);
    }
    /** Lists the names in one place. */
    [[nodiscard]] cursor list(const place &where, const search_options &o = {}) {
        const detail::search_attr attr(o, nullptr);
        ::iov_cursor *out = nullptr;
        check(::iov_group_list(need(), where.workspace(), where.group(), attr.get(), &out));
        return cursor(out);
    }
    /** Closes a collection or group when the batch completes. The object has to live until then; afterwards it is
     *  closed, and its destructor has nothing left to do. */
    std::size_t close(const object &c) { return added(::iov_collection_close(need(), alive(c))); }
    /** Ends the batch itself, as the destructor does, but reports BUSY instead of waiting. */
    using batch_handle::close;
    /** Removes a name. */
    std::size_t remove(const place &where, const text &name_or_uuid) {
        return added(::iov_collection_delete(need(), where.workspace(), where.group(), name_or_uuid.c_str()));
    }
    /** Moves a name; flags: IOV_RENAME_*. */
    std::size_t rename(const place &from_place, const text &from, const place &to_place, const text &to,
                       std::uint32_t flags = 0) {
        return added(::iov_rename(need(), from_place.workspace(), from_place.group(), from.c_str(), to_place.group(),
                                  to.c_str(), flags));
    }
    /** Gives a collection one more name. */
    std::size_t link(const object &c, const place &where, const text &name) {
        return added(::iov_link(need(), c.get(), where.group(), name.c_str()));
    }

    /** Reads the facts; *out is set on completion. */
    std::size_t stat(const object &c, ::iov_stat *out) {
        return added(::iov_collection_stat(need(), c.get(), sized(out)));
    }
    /** The same of a workspace. */
    std::size_t stat(const workspace &w, ::iov_stat *out) {
        return added(::iov_workspace_stat(need(), w.get(), sized(out)));
    }
    /** Changes controls or layout as an exclusive holder; a null pointer leaves them. */
    std::size_t set(const object &c, const iov::controls *to, const ::iov_layout *layout) {
        return added(::iov_collection_set(need(), c.get(), to == nullptr ? nullptr : &to->raw(), layout));
    }
    /** Sets owner, mode or mtime. */
    std::size_t set_attr(const object &c, const ::iov_attr &attr) {
        return added(::iov_setattr(need(), c.get(), &attr));
    }
    /** Reads one value; *out is set on completion, and its bytes live until reset. */
    std::size_t get_metadata(const object &c, const text &key, ::iov_value *out) {
        return added(::iov_metadata_get(need(), c.get(), key.c_str(), sized(out)));
    }
    /** Reads all user pairs; *out is set on completion, and iov::metadata(*out) takes it over. */
    std::size_t list_metadata(const object &c, ::iov_metadata **out) {
        return added(::iov_metadata_list(need(), c.get(), out));
    }
    /** Adds or replaces pairs. */
    std::size_t put_metadata(const object &c, const metadata_view &pairs) {
        return added(::iov_metadata_put(need(), c.get(), pairs.get()));
    }
    /** The same, as in `b.put_metadata(c, {{"state", "converged"}})`. */
    std::size_t put_metadata(const object &c, std::initializer_list<metadata_pair> pairs) {
        return put_metadata(c, iov::metadata(pairs).view());
    }
    /** Removes one pair. */
    std::size_t remove_metadata(const object &c, const text &key) {
        return added(::iov_metadata_remove(need(), c.get(), key.c_str()));
    }

    /** Changes a workspace's properties. */
    std::size_t set(const workspace &w, const workspace_options &options) {
        return added(::iov_workspace_set(need(), w.get(), detail::workspace_attr(options).get()));
    }
    /** Gives a workspace another name. */
    std::size_t set_name(const workspace &w, const text &name) {
        return added(::iov_workspace_rename(need(), w.get(), name.c_str()));
    }
    /** Publishes this session's creates, deletes, renames and puts in a workspace. */
    std::size_t commit(const workspace &w) { return added(::iov_workspace_commit(need(), w.get())); }
    /** Makes them, and all bytes this session wrote in it, survive. */
    std::size_t persist(const workspace &w) { return added(::iov_workspace_persist(need(), w.get())); }

    /** Writes all bytes at offset. */
    std::size_t write(const collection &c, std::uint64_t offset, const_buffer from) {
        return added(::iov_write(need(), c.get(), offset, from.data(), from.size()));
    }
    /** Reads bytes; *got, which may be null, is set on completion, as is status().bytes(). */
    std::size_t read(const collection &c, std::uint64_t offset, mutable_buffer into, std::size_t *got = nullptr) {
        return added(::iov_read(need(), c.get(), offset, into.data(), into.size(), got));
    }
    /** Writes n chunks as one request. The array is copied, the memory of the chunks is lent. */
    std::size_t writev(const collection &c, const ::iov_chunk *chunks, std::size_t n, std::size_t *done = nullptr) {
        return added(::iov_writev(need(), c.get(), chunks, n, done));
    }
    /** Reads n chunks as one request; likewise. */
    std::size_t readv(const collection &c, const ::iov_chunk *chunks, std::size_t n, std::size_t *done = nullptr) {
        return added(::iov_readv(need(), c.get(), chunks, n, done));
    }
    /** Adds one record at the end; *offset, which may be null, is set on completion. */
    std::size_t append(const collection &c, const_buffer record, std::uint64_t *offset = nullptr) {
        return added(::iov_append(need(), c.get(), record.data(), record.size(), offset));
    }
    /** Cuts, or extends with a hole. */
    std::size_t truncate(const collection &c, std::uint64_t size) {
        return added(::iov_truncate(need(), c.get(), size));
    }
    /** Makes a range a hole. */
    std::size_t punch(const collection &c, std::uint64_t offset, std::uint64_t length) {
        return added(::iov_punch(need(), c.get(), offset, length));
    }
    /** Reserves space; flags: IOV_ALLOCATE_*. */
    std::size_t allocate(const collection &c, std::uint64_t offset, std::uint64_t length, std::uint32_t flags = 0) {
        return added(::iov_allocate(need(), c.get(), offset, length, flags));
    }
    /** Lists up to `max` extents of a range; out and *n are set on completion. */
    std::size_t extents(const collection &c, std::uint64_t offset, std::uint64_t length, ::iov_extent *out,
                        std::size_t max, std::size_t *n) {
        return added(::iov_extents(need(), c.get(), offset, length, out, max, n));
    }
    /** Copies within the store; *copied, which may be null, is set on completion. */
    std::size_t copy(const collection &from, std::uint64_t from_offset, const collection &to, std::uint64_t to_offset,
                     std::uint64_t length, std::uint64_t *copied = nullptr) {
        return added(::iov_copy(need(), from.get(), from_offset, to.get(), to_offset, length, copied));
    }
    /** Publishes what was written through this handle. */
    std::size_t commit(const collection &c) { return added(::iov_commit(need(), c.get())); }
    /** Makes what was written survive. */
    std::size_t persist(const collection &c) { return added(::iov_persist(need(), c.get())); }
    /** Fixes bytes and size for good. */
    std::size_t seal(const collection &c) { return added(::iov_seal(need(), c.get())); }
    /** Takes an advisory lock; `only_try`: BUSY instead of waiting. */
    std::size_t lock(const collection &c, const lock_options &o = {}, bool only_try = false) {
        const ::iov_lock_attr attr = detail::lock_attr(o, only_try);
        return added(::iov_lock(need(), c.get(), &attr));
    }
    /** Gives back what the owner holds of the range. */
    std::size_t unlock(const collection &c, const lock_options &o = {}) {
        const ::iov_lock_attr attr = detail::lock_attr(o);
        return added(::iov_unlock(need(), c.get(), &attr));
    }

  private:
    // To the C library no batch means "now": an object without one must not get so far.
    ::iov_batch *need() const { return detail::required(get(), "batch"); }
    // Closing no collection is fine there, and adds no operation.
    static ::iov_collection *alive(const object &c) { return detail::required(c.get(), "collection or group"); }
    std::size_t added(int code) const {
        check(code);
        return size() - 1;
    }
    template <class T> static T *sized(T *out) noexcept {
        if (out != nullptr) {
            *out = iov_init_<T>();
        }
        return out;
    }
};

namespace detail {

// A batch of one operation, started at once; the request keeps it.
template <class Append> request start_one(::iov_session *s, const batch_options &how, Append append) {
    batch one(s, how);
    append(one);
    return std::move(one).start();
}

} // namespace detail

inline request collection::async_write(std::uint64_t offset, const_buffer from, const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.write(*this, offset, from); });
}

inline request collection::async_read(std::uint64_t offset, mutable_buffer into, const batch_options &how) const {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.read(*this, offset, into); });
}

inline request collection::async_writev(const ::iov_chunk *chunks, std::size_t n, const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.writev(*this, chunks, n); });
}

inline request collection::async_readv(const ::iov_chunk *chunks, std::size_t n, const batch_options &how) const {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.readv(*this, chunks, n); });
}

inline request collection::async_append(const_buffer record, std::uint64_t *offset, const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.append(*this, record, offset); });
}

inline request collection::async_copy_to(std::uint64_t offset, collection &to, std::uint64_t to_offset,
                                         std::uint64_t length, const batch_options &how) const {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.copy(*this, offset, to, to_offset, length); });
}

inline request collection::async_commit(const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.commit(*this); });
}

inline request collection::async_persist(const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.persist(*this); });
}

inline request collection::async_close(const batch_options &how) {
    return detail::start_one(session_handle(), how, [&](batch &b) { b.close(*this); });
}

} // namespace iov

#endif
