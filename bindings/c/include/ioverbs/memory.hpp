/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file memory.hpp
 * @brief Memory without copies: buffers, registrations, views.
 */
#ifndef IOVERBS_MEMORY_HPP
#define IOVERBS_MEMORY_HPP

#include "collection.hpp"

namespace iov {

/** Memory of a session from and to which it moves bytes without a copy where it can; freed in the destructor. It has to
 *  outlive the requests that use it; the session has to stay open. */
class buffer {
  public:
    /** None. */
    buffer() noexcept = default;
    /** Allocates it; `attr` from IOV_BUFFER_ATTR_INIT. EXHAUSTED, UNSUPPORTED (kind of memory). */
    buffer(const session &s, std::size_t bytes, const ::iov_buffer_attr &attr = IOV_BUFFER_ATTR_INIT)
        : session_(s.get()), size_(bytes) {
        check(::iov_buffer_alloc(session_, bytes, &attr, &data_));
    }
    buffer(buffer &&other) noexcept
        : session_(other.session_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    buffer &operator=(buffer &&other) noexcept {
        if (this != &other) {
            end();
            session_ = other.session_;
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    ~buffer() { end(); }

    /** The first byte. */
    void *data() const noexcept { return data_; }
    /** The number of bytes. */
    std::size_t size() const noexcept { return size_; }
    /** For functions that take bytes. */
    operator mutable_buffer() const noexcept { return {data_, size_}; }
    operator const_buffer() const noexcept { return {data_, size_}; }
    /** Frees it now. BUSY: a request uses it. */
    void close() {
        check(::iov_buffer_free(session_, data_));
        data_ = nullptr;
        size_ = 0;
    }

  private:
    void end() noexcept {
        if (data_ != nullptr) {
            (void)::iov_buffer_free(session_, data_);
        }
    }

    ::iov_session *session_ = nullptr;
    void *data_ = nullptr;
    std::size_t size_ = 0;
};

/** Prepares memory of the program for the same, until the destructor; the memory has to live as long. */
class registration {
  public:
    /** None. */
    registration() noexcept = default;
    /** Registers it; `attr` says what it is. UNSUPPORTED. */
    registration(const session &s, mutable_buffer memory, const ::iov_buffer_attr &attr = IOV_BUFFER_ATTR_INIT)
        : session_(s.get()) {
        check(::iov_buffer_register(session_, memory.data(), memory.size(), &attr));
        data_ = memory.data();
    }
    registration(registration &&other) noexcept
        : session_(other.session_), data_(std::exchange(other.data_, nullptr)) {}
    registration &operator=(registration &&other) noexcept {
        if (this != &other) {
            end();
            session_ = other.session_;
            data_ = std::exchange(other.data_, nullptr);
        }
        return *this;
    }
    ~registration() { end(); }

    /** Ends it now. BUSY: a request uses the memory. */
    void close() {
        if (data_ != nullptr) {
            check(::iov_buffer_unregister(session_, data_));
            data_ = nullptr;
        }
    }

  private:
    void end() noexcept {
        if (data_ != nullptr) {
            (void)::iov_buffer_unregister(session_, data_);
        }
    }

    ::iov_session *session_ = nullptr;
    void *data_ = nullptr;
};

/** Stored bytes in place, read-only. Its lease pins them until the destructor; those of an unsealed collection may
 *  change meanwhile. */
class view {
  public:
    /** None. */
    view() noexcept = default;
    /** Shows up to `length` bytes, at most one extent: go on at offset + size(). UNSUPPORTED: out of reach, read. */
    view(const collection &c, std::uint64_t offset, std::size_t length) {
        check(::iov_view(c.get(), offset, length, &data_, &size_, &lease_));
    }
    view(view &&other) noexcept
        : lease_(std::exchange(other.lease_, nullptr)), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    view &operator=(view &&other) noexcept {
        if (this != &other) {
            close();
            lease_ = std::exchange(other.lease_, nullptr);
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    ~view() { close(); }

    /** The first byte; aligned as the offset is, up to 64 bytes. */
    const void *data() const noexcept { return data_; }
    /** The number of bytes. */
    std::size_t size() const noexcept { return size_; }
    /** For functions that take bytes. */
    operator const_buffer() const noexcept { return {data_, size_}; }
    /** Gives the lease back: the bytes are out of bounds from here on. */
    void close() noexcept {
        ::iov_view_release(std::exchange(lease_, nullptr));
        data_ = nullptr;
        size_ = 0;
    }

  private:
    ::iov_view_lease *lease_ = nullptr;
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace iov

#endif
