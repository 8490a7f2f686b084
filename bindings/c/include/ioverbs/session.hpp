/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file session.hpp
 * @brief Sessions: connections to stores.
 */
#ifndef IOVERBS_SESSION_HPP
#define IOVERBS_SESSION_HPP

#include "cursor.hpp"

namespace iov {

class workspace;

/** The version of the library at run time, as "0.1.0". */
inline std::string_view version() noexcept { return ::iov_version(); }

/**
 * One connection to one store, ended in the destructor; any thread, any time. Workspaces and collections opened through
 * it go on when it has ended. It does not end while a request is in flight: close() is BUSY then, and a destructor
 * leaves the handle behind.
 */
class session : public detail::owner<::iov_session, ::iov_close> {
  public:
    /** An empty one. */
    session() noexcept = default;
    /** Takes over a session of ioverbs.h. */
    explicit session(::iov_session *handle) noexcept : owner(handle) {}

    /** Creates and opens a workspace. EXISTS, REFUSED. */
    [[nodiscard]] workspace create_workspace(const text &name, const workspace_options &options = {});
    /** Opens an existing workspace. NOTFOUND. */
    [[nodiscard]] workspace load_workspace(const text &name_or_uuid);
    /** Searches the workspaces that the caller may see; no predicate = all. INVALID. */
    [[nodiscard]] cursor search_workspaces(const text &predicate = nullptr, const search_options &options = {}) {
        const detail::search_attr attr(options, nullptr);
        ::iov_cursor *out = nullptr;
        check(::iov_workspace_search(get(), predicate.c_str(), attr.get(), &out));
        return cursor(out);
    }
    /** Deletes an empty workspace. NOTFOUND, NOTEMPTY, BUSY (held exclusively). */
    void delete_workspace(const text &name_or_uuid) { check(::iov_workspace_delete(get(), name_or_uuid.c_str())); }

    /** What a create anywhere in the store would get for these controls. REFUSED: the detail has the offer. */
    controls check_controls(const controls &asked) const {
        controls granted;
        check(::iov_controls_check(get(), nullptr, &asked.raw(), &granted.raw()));
        return granted;
    }

    /** What the session has cost so far. */
    ::iov_counters counters() const {
        ::iov_counters out = IOV_COUNTERS_INIT;
        check(::iov_session_counters(get(), &out));
        return out;
    }

    /** A descriptor that is readable when poll() has work; never read or close it. */
    int event_fd() {
        const int fd = ::iov_event_fd(get());
        check(fd);
        return fd;
    }
    /**
     * Drives the session and tells of up to `max` completed requests, each once, if no wait or test did before; returns
     * their number, 0 if there were none in this time. The requests stay their owners'.
     */
    template <class Rep, class Period>
    std::size_t poll(::iov_completion *out, std::size_t max, std::chrono::duration<Rep, Period> timeout) {
        if (out != nullptr && max > 0) {
            out->size = sizeof *out;
        }
        std::size_t n = 0;
        const int code = ::iov_poll(get(), out, max, &n, detail::nanoseconds(timeout));
        if (code != -IOV_ETIMEOUT) {
            check(code);
        }
        return n;
    }
};

/**
 * Opens a store. No URL = $IOVERBS_URL, else the configuration, else the embedded default store, whose daemon starts on
 * demand. NOTFOUND, UNSUPPORTED (scheme), INVALID.
 */
[[nodiscard]] inline session open(const text &url = nullptr, const session_options &options = {}) {
    ::iov_session_attr attr = IOV_SESSION_ATTR_INIT;
    attr.flags = options.flags;
    attr.deadline_ns = options.deadline ? detail::deadline(*options.deadline) : 0;
    attr.cache_bytes = options.cache_bytes;
    attr.program = detail::or_null(options.program);
    attr.token = detail::or_null(options.token);
    attr.config = detail::or_null(options.config);
    ::iov_session *out = nullptr;
    check(::iov_open(url.c_str(), &attr, &out));
    return session(out);
}

} // namespace iov

#endif
