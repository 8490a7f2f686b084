/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file memory.hpp
 * @brief Memory without copies, and handles on their way to other processes.
 */
#ifndef IOVERBS_MEMORY_HPP
#define IOVERBS_MEMORY_HPP

#include "workspace.hpp"

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

namespace detail {
inline std::string export_handle(const ::iov_handle &handle) {
    std::string out(256, '\0');
    std::size_t needed = 0;
    int code = ::iov_handle_export(&handle, out.data(), out.size(), &needed);
    if (code == -IOV_ETOOBIG) {
        out.resize(needed);
        code = ::iov_handle_export(&handle, out.data(), out.size(), &needed);
    }
    check(code);
    out.resize(needed);
    return out;
}

inline ::iov_handle import_handle(const session &s, const_buffer bytes) {
    ::iov_handle out = IOV_HANDLE_INIT;
    check(::iov_handle_import(s.get(), bytes.data(), bytes.size(), &out));
    return out;
}
} // namespace detail

/** A handle as bytes: whoever gets them can import it and has its access until its lease ends. */
inline std::string export_handle(const collection &c) {
    ::iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = IOV_KIND_COLLECTION;
    handle.collection = c.get();
    return detail::export_handle(handle);
}
/** The same for a workspace. */
inline std::string export_handle(const workspace &w) {
    ::iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = IOV_KIND_WORKSPACE;
    handle.workspace = w.get();
    return detail::export_handle(handle);
}
/** The same for a session: who imports it joins its exclusive holds (X1). */
inline std::string export_handle(const session &s) {
    ::iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = IOV_KIND_SESSION;
    handle.session = s.get();
    return detail::export_handle(handle);
}

/** Opens the collection that the bytes stand for. INVALID (another kind, other bytes), STALE. */
[[nodiscard]] inline collection import_collection(const session &s, const_buffer bytes) {
    const ::iov_handle got = detail::import_handle(s, bytes);
    if (got.kind == IOV_KIND_WORKSPACE) {
        (void)::iov_workspace_close(got.workspace);
    } else if (got.kind == IOV_KIND_GROUP) {
        (void)::iov_collection_close(nullptr, got.collection);
    }
    if (got.kind != IOV_KIND_COLLECTION) {
        throw error(IOV_EINVALID, "these bytes are the handle of something else than a collection");
    }
    return collection(got.collection, s.get());
}
/** Opens the workspace that the bytes stand for. INVALID (another kind, other bytes), STALE. */
[[nodiscard]] inline workspace import_workspace(const session &s, const_buffer bytes) {
    const ::iov_handle got = detail::import_handle(s, bytes);
    if (got.kind == IOV_KIND_COLLECTION || got.kind == IOV_KIND_GROUP) {
        (void)::iov_collection_close(nullptr, got.collection);
    }
    if (got.kind != IOV_KIND_WORKSPACE) {
        throw error(IOV_EINVALID, "these bytes are the handle of something else than a workspace");
    }
    return workspace(got.workspace, s.get());
}
/** Lets this session join the exclusive holds of the session that the bytes stand for. INVALID, STALE. */
inline void join_session(const session &s, const_buffer bytes) {
    const ::iov_handle got = detail::import_handle(s, bytes);
    if (got.kind == IOV_KIND_WORKSPACE) {
        (void)::iov_workspace_close(got.workspace);
    } else if (got.kind != IOV_KIND_SESSION) {
        (void)::iov_collection_close(nullptr, got.collection);
    }
    if (got.kind != IOV_KIND_SESSION) {
        throw error(IOV_EINVALID, "these bytes are the handle of something else than a session");
    }
}

} // namespace iov

#endif
