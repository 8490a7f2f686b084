/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file segment.hpp
 * @brief Segments: bytes with an id instead of a name.
 */
#ifndef IOVERBS_SEGMENT_HPP
#define IOVERBS_SEGMENT_HPP

#include "controls.hpp"
#include "uuid.hpp"
#include "workspace.hpp"

namespace iov {

/**
 * The segments of a workspace, which must stay open for as long as this is used. Made, filled, read and removed as memory
 * is, by whatever process of the workspace knows their id. Any thread, any time.
 */
class segments {
  public:
    /** Those of a workspace. */
    explicit segments(const workspace &w) noexcept : workspace_(w.get()), session_(w.session_handle()) {}

    /** Makes one of `size` bytes, all zeros, with its space reserved. EXHAUSTED. */
    [[nodiscard]] uuid create(std::uint64_t size) {
        ::iov_uuid out;
        check(::iov_segment_create(workspace_, size, nullptr, &out));
        return uuid(out);
    }
    /** The same, with promises. EXHAUSTED, REFUSED. */
    [[nodiscard]] uuid create(std::uint64_t size, const iov::controls &asked) {
        ::iov_uuid out;
        check(::iov_segment_create(workspace_, size, &asked.raw(), &out));
        return uuid(out);
    }
    /** Removes it and gives its space back. NOTFOUND. */
    void remove(const uuid &id) { check(::iov_segment_remove(workspace_, &id.raw())); }
    /** Stores bytes in it. FILETOOBIG: beyond its end. NOTFOUND. */
    void put(const uuid &id, std::uint64_t offset, const_buffer from) {
        check(::iov_segment_put(workspace_, &id.raw(), offset, from.data(), from.size()));
    }
    /** Fills memory from it. INVALID: it ends before. NOTFOUND. */
    void get(const uuid &id, std::uint64_t offset, mutable_buffer into) const {
        check(::iov_segment_get(workspace_, &id.raw(), offset, into.data(), into.size()));
    }
    /** Stores bytes in an endless space: any id, any offset; what is not there is made, and grows. */
    void write(const uuid &id, std::uint64_t offset, const_buffer from) {
        check(::iov_segment_write(workspace_, &id.raw(), offset, from.data(), from.size()));
    }
    /** Fills memory from that space: what nobody has written is zeros. The bytes before the end. */
    std::size_t read(const uuid &id, std::uint64_t offset, mutable_buffer into) const {
        std::size_t got = 0;
        check(::iov_segment_read(workspace_, &id.raw(), offset, into.data(), into.size(), &got));
        return got;
    }
    /** How many bytes it has. NOTFOUND. */
    std::uint64_t size(const uuid &id) const {
        std::uint64_t out = 0;
        check(::iov_segment_size(workspace_, &id.raw(), &out));
        return out;
    }
    /** The segment as a collection, for batches, views and seals. NOTFOUND. */
    [[nodiscard]] collection open(const uuid &id) const {
        ::iov_collection *out = nullptr;
        check(::iov_collection_open_segment(nullptr, workspace_, &id.raw(), &out));
        return collection(out, session_);
    }

  private:
    ::iov_workspace *workspace_;
    ::iov_session *session_;
};

} // namespace iov

#endif
