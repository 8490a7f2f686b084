/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file collection.hpp
 * @brief Collections: byte-addressable objects with typed metadata (O2).
 */
#ifndef IOVERBS_COLLECTION_HPP
#define IOVERBS_COLLECTION_HPP

#include "session.hpp"

#include <algorithm>

namespace iov {

class batch;
class place;
class request;

namespace detail {
inline int close_collection(::iov_collection *c) { return ::iov_collection_close(nullptr, c); }
} // namespace detail

/**
 * What collections and groups have in common. Any thread, any time. Each call is done when it returns, or ends with the
 * session's deadline; the same operations can be appended to a batch.
 *
 * The destructor closes it: that commits, and persists as the persistence point says, but nobody hears if that fails.
 * Who has to know calls close(); who has to be able to try again calls commit() and persist() first (rule 5).
 */
class object : public detail::owner<::iov_collection, detail::close_collection, detail::ends::always> {
  public:
    /** Facts: size, times, state and so on, as fresh as a read through this handle. */
    ::iov_stat stat() const {
        ::iov_stat out = IOV_STAT_INIT;
        check(::iov_collection_stat(nullptr, get(), &out));
        return out;
    }

    /** All user pairs, as a set of one's own. */
    iov::metadata metadata() const {
        ::iov_metadata *out = nullptr;
        check(::iov_metadata_list(nullptr, get(), &out));
        return iov::metadata(out);
    }
    /** The value of one key, system keys too, as a T that owns it: see value::as. NOTFOUND, INVALID (other type). */
    template <class T> T get_metadata(const text &key) const {
        static_assert(!std::is_same_v<T, std::string_view> && !std::is_same_v<T, const_buffer>,
                      "the bytes would be gone with the next call: take a std::string, or metadata()");
        ::iov_value out = IOV_VALUE_INIT;
        check(::iov_metadata_get(nullptr, get(), key.c_str(), &out));
        return value(out).template as<T>();
    }
    /** Adds or replaces these pairs; others stay. */
    void put_metadata(const metadata_view &pairs) { check(::iov_metadata_put(nullptr, get(), pairs.get())); }
    /** Removes one pair. NOTFOUND. */
    void remove_metadata(const text &key) { check(::iov_metadata_remove(nullptr, get(), key.c_str())); }

    /** What the handle was granted; nothing is unset. BUSY while it is pending. */
    iov::controls controls() const {
        iov::controls out;
        check(::iov_controls_effective(get(), &out.raw()));
        return out;
    }
    /** Changes the collection's controls as an exclusive holder, for those who open it from now on. REFUSED, BUSY. */
    void set_controls(const iov::controls &to) { check(::iov_collection_set(nullptr, get(), &to.raw(), nullptr)); }
    /** Where the bytes lie; its texts live as long as the handle. BUSY while it is pending. */
    ::iov_layout layout() const {
        ::iov_layout out = IOV_LAYOUT_INIT;
        check(::iov_collection_layout(get(), &out));
        return out;
    }
    /** Changes the layout as an exclusive holder; makes a new revision. REFUSED, BUSY. */
    void set_layout(const ::iov_layout &to) { check(::iov_collection_set(nullptr, get(), nullptr, &to)); }
    /** Sets owner, mode, mtime or lifetime, as the owner; `attr` from IOV_ATTR_INIT. */
    void set_attr(const ::iov_attr &attr) { check(::iov_setattr(nullptr, get(), &attr)); }

    /** The session that it was opened through, for making batches; a null pointer if this is empty. */
    ::iov_session *session_handle() const noexcept { return session_; }

  protected:
    object() noexcept = default;
    object(::iov_collection *handle, ::iov_session *s) noexcept : owner(handle), session_(s) {}

  private:
    ::iov_session *session_ = nullptr;
};

/**
 * A collection of bytes. Buffers of blocking calls are used until they return. Those of asynchronous calls (async_*)
 * are lent to the request: they have to outlive it, and be left alone until it has completed, after a cancel too. An
 * asynchronous call needs the session to be still open; the collection has to stay open until the request has
 * completed.
 */
class collection : public object {
  public:
    /** An empty one. */
    collection() noexcept = default;
    /** Takes over a collection of ioverbs.h; `s` is its session. */
    collection(::iov_collection *handle, ::iov_session *s) noexcept : object(handle, s) {}

    /** Writes all bytes at offset. IMMUTABLE, FENCED, FILETOOBIG, EXHAUSTED (quota, space), STALE. */
    void write(std::uint64_t offset, const_buffer from) {
        check(::iov_write(nullptr, get(), offset, from.data(), from.size()));
    }
    /** Reads bytes and returns how many: fewer only at the end; holes are zeros (O6). CORRUPT, LOST, STALE. */
    std::size_t read(std::uint64_t offset, mutable_buffer into) const {
        std::size_t got = 0;
        check(::iov_read(nullptr, get(), offset, into.data(), into.size(), &got));
        return got;
    }
    /** As write, for n chunks as one request; see write_chunk. Returns the bytes written. */
    std::size_t writev(const ::iov_chunk *chunks, std::size_t n) {
        std::size_t done = 0;
        check(::iov_writev(nullptr, get(), chunks, n, &done));
        return done;
    }
    /** As read, for n chunks as one request; see chunk. Returns the bytes read. */
    std::size_t readv(const ::iov_chunk *chunks, std::size_t n) const {
        std::size_t done = 0;
        check(::iov_readv(nullptr, get(), chunks, n, &done));
        return done;
    }
    /** Adds one record at the end and returns its offset, which the system chooses (M4). As write. */
    std::uint64_t append(const_buffer record) {
        std::uint64_t offset = 0;
        check(::iov_append(nullptr, get(), record.data(), record.size(), &offset));
        return offset;
    }
    /** Cuts, or extends with a hole. As write. */
    void truncate(std::uint64_t size) { check(::iov_truncate(nullptr, get(), size)); }
    /** Makes a range a hole; the size stays. As write. */
    void punch(std::uint64_t offset, std::uint64_t length) { check(::iov_punch(nullptr, get(), offset, length)); }
    /** Reserves space, so that writes to the range cannot lack it. flags: IOV_ALLOCATE_*. As write. */
    void allocate(std::uint64_t offset, std::uint64_t length, std::uint32_t flags = 0) {
        check(::iov_allocate(nullptr, get(), offset, length, flags));
    }
    /** Data and holes of a range, in order; without `length` up to the end. */
    std::vector<::iov_extent> extents(std::uint64_t offset = 0, std::uint64_t length = UINT64_MAX) const {
        constexpr std::uint64_t last = INT64_MAX; // no collection is longer
        const std::uint64_t end = offset > last ? offset : offset + std::min(length, last - offset);
        std::vector<::iov_extent> all;
        do {
            ::iov_extent page[64];
            std::size_t n = 0;
            check(::iov_extents(nullptr, get(), offset, end - offset, page, std::size(page), &n));
            all.insert(all.end(), page, page + n);
            if (n < std::size(page)) {
                break;
            }
            offset = page[n - 1].offset + page[n - 1].len;
        } while (offset < end);
        return all;
    }
    /** Copies within the store and returns how many bytes: fewer only at the end of this one. */
    std::uint64_t copy_to(std::uint64_t offset, collection &to, std::uint64_t to_offset, std::uint64_t length) const {
        std::uint64_t copied = 0;
        check(::iov_copy(nullptr, get(), offset, to.get(), to_offset, length, &copied));
        return copied;
    }
    /** The number of bytes. */
    std::uint64_t size() const { return stat().bytes; }

    /** Visibility: publishes what was written through this handle (C2). FENCED. */
    void commit() { check(::iov_commit(nullptr, get())); }
    /** Survival: returns when what was written has its persistence level (P5). What failed once stays failed (P8). */
    void persist() { check(::iov_persist(nullptr, get())); }
    /** Fixes bytes and size for good, for everybody (M2). FENCED. */
    void seal() { check(::iov_seal(nullptr, get())); }
    /** Gives the collection one more name, or its first, in a group or the root of its workspace. EXISTS. */
    void link(const place &where, const text &name);

    /** As write. The request's bytes() are those written. */
    [[nodiscard]] request async_write(std::uint64_t offset, const_buffer from, const batch_options &how = {});
    /** As read. The request's bytes() are those read. */
    [[nodiscard]] request async_read(std::uint64_t offset, mutable_buffer into, const batch_options &how = {}) const;
    /** As writev. The array of chunks is copied, the memory of the chunks is lent. */
    [[nodiscard]] request async_writev(const ::iov_chunk *chunks, std::size_t n, const batch_options &how = {});
    /** As readv, and as async_writev. */
    [[nodiscard]] request async_readv(const ::iov_chunk *chunks, std::size_t n, const batch_options &how = {}) const;
    /** As append. *offset, which may be null, is set on completion and is lent as the buffer is. */
    [[nodiscard]] request async_append(const_buffer record, std::uint64_t *offset, const batch_options &how = {});
    /** As copy_to. Both collections have to stay open. */
    [[nodiscard]] request async_copy_to(std::uint64_t offset, collection &to, std::uint64_t to_offset,
                                        std::uint64_t length, const batch_options &how = {}) const;
    /** As commit. */
    [[nodiscard]] request async_commit(const batch_options &how = {});
    /** As persist. */
    [[nodiscard]] request async_persist(const batch_options &how = {});
    /** As close: when the request has completed the handle has ended, and this object may be destroyed. */
    [[nodiscard]] request async_close(const batch_options &how = {});
};

} // namespace iov

#endif
