/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file handle.hpp
 * @brief Ownership of the handles of ioverbs.h.
 */
#ifndef IOVERBS_HANDLE_HPP
#define IOVERBS_HANDLE_HPP

#include "error.hpp"

#include <utility>

namespace iov::detail {

// Whether the handle is gone although its end told of an error (rule 5), or stays and can be tried again.
enum class ends { always, on_success };

// The one owner of a handle. Empty after a move, a release and a close; an empty one may be closed and destroyed, all
// else that is done with it throws INVALID.
template <class T, int (*End)(T *), ends When = ends::on_success> class owner {
  public:
    /** An empty one. */
    owner() noexcept = default;
    /** Takes over a handle of ioverbs.h. */
    explicit owner(T *handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(other.release()) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            end();
            handle_ = other.release();
        }
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    /** Closes what is open. An error is not reported: who wants it calls close(). */
    ~owner() { end(); }

    /** The handle, for functions of ioverbs.h; it stays ours. A null pointer if this is empty. */
    T *get() const noexcept { return handle_; }
    /** Gives the handle away: the caller closes it. */
    [[nodiscard]] T *release() noexcept { return std::exchange(handle_, nullptr); }
    /** Whether there is a handle. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /** Ends it now and reports the error. Nothing happens to an empty one. */
    void close() {
        const int code = End(handle_);
        if (code == 0 || When == ends::always) {
            handle_ = nullptr;
        }
        iov::check(code);
    }

  private:
    void end() noexcept {
        if (handle_ != nullptr) {
            (void)End(handle_);
            handle_ = nullptr;
        }
    }

    T *handle_ = nullptr;
};

// The handle of an owner that must not be empty: in places where a null pointer means something to the C library.
template <class T> T *required(T *handle, const char *what) {
    if (handle == nullptr) {
        throw error(IOV_EINVALID, std::string("the ") + what + " is empty: it was closed, moved from, or never opened");
    }
    return handle;
}

} // namespace iov::detail

#endif
