/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file transfer.hpp
 * @brief Handles on their way to other processes: one rank opens and sends the bytes, the others import them.
 */
#ifndef IOVERBS_TRANSFER_HPP
#define IOVERBS_TRANSFER_HPP

#include "workspace.hpp"

namespace iov {
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

// What the bytes stand for, which must be of this kind; anything else is closed again.
inline ::iov_handle import_handle(const session &s, const_buffer bytes, std::uint32_t kind, const char *what) {
    ::iov_handle out = IOV_HANDLE_INIT;
    check(::iov_handle_import(s.get(), bytes.data(), bytes.size(), &out));
    if (out.kind == kind) {
        return out;
    }
    if (out.kind == IOV_KIND_WORKSPACE) {
        (void)::iov_workspace_close(out.workspace);
    } else if (out.kind != IOV_KIND_SESSION) {
        (void)::iov_collection_close(nullptr, out.collection);
    }
    throw error(IOV_EINVALID, std::string("these bytes are not the handle of a ") + what);
}

} // namespace detail

/** A handle as bytes: whoever has them can import it, and has its access until its lease ends. */
inline std::string export_handle(const collection &c) {
    ::iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = IOV_KIND_COLLECTION;
    handle.collection = c.get();
    return detail::export_handle(handle);
}
/** The same for a group. */
inline std::string export_handle(const group &g) {
    ::iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = IOV_KIND_GROUP;
    handle.collection = g.get();
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

/** Opens the collection that the bytes stand for. INVALID (other bytes, another kind), STALE. */
[[nodiscard]] inline collection import_collection(const session &s, const_buffer bytes) {
    return collection(detail::import_handle(s, bytes, IOV_KIND_COLLECTION, "collection").collection, s.get());
}
/** Opens the group that the bytes stand for; `w` is its workspace, opened through `s`. INVALID, STALE. */
[[nodiscard]] inline group import_group(const session &s, const workspace &w, const_buffer bytes) {
    const place where(w);
    return group(detail::import_handle(s, bytes, IOV_KIND_GROUP, "group").collection, where);
}
/** Opens the workspace that the bytes stand for. INVALID, STALE. */
[[nodiscard]] inline workspace import_workspace(const session &s, const_buffer bytes) {
    return workspace(detail::import_handle(s, bytes, IOV_KIND_WORKSPACE, "workspace").workspace, s.get());
}
/** Lets this session join the exclusive holds of the session that the bytes stand for (X1). INVALID, STALE. */
inline void join_session(const session &s, const_buffer bytes) {
    (void)detail::import_handle(s, bytes, IOV_KIND_SESSION, "session");
}

} // namespace iov

#endif
