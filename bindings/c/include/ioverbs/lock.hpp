/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file lock.hpp
 * @brief Advisory locks on ranges (O11).
 */
#ifndef IOVERBS_LOCK_HPP
#define IOVERBS_LOCK_HPP

#include "collection.hpp"

namespace iov {

/**
 * A lock on a range of a collection, given back in the destructor. Reads and writes do not look at it, and it publishes
 * nothing. The collection has to stay open; when that closes, locks of its handle end with it.
 *
 *     iov::lock held(c, {iov::lock_mode::exclusive, 0, 4096});
 */
class lock {
  public:
    /** None. */
    lock() noexcept = default;
    /** Takes the lock; waits for it until the session's deadline. TIMEOUT. */
    explicit lock(const collection &c, const lock_options &options = {})
        : collection_(c.get()), attr_(detail::lock_attr(options)) {
        check(::iov_lock(nullptr, collection_, &attr_));
    }
    /** The lock if it can be had at once, else none: see operator bool. */
    [[nodiscard]] static lock try_lock(const collection &c, const lock_options &options = {}) {
        lock out;
        const ::iov_lock_attr attr = detail::lock_attr(options, true);
        const int code = ::iov_lock(nullptr, c.get(), &attr);
        if (code != -IOV_EBUSY) {
            check(code);
            out.collection_ = c.get();
            out.attr_ = detail::lock_attr(options);
        }
        return out;
    }
    /** A lock that stands in the way of this one, if there is one. */
    static std::optional<::iov_lock_attr> query(const collection &c, const lock_options &options = {}) {
        const ::iov_lock_attr attr = detail::lock_attr(options);
        ::iov_lock_attr found = IOV_LOCK_ATTR_INIT;
        const int code = ::iov_lock_query(nullptr, c.get(), &attr, &found);
        if (code == -IOV_ENOTFOUND) {
            return std::nullopt;
        }
        check(code);
        return found;
    }

    lock(lock &&other) noexcept : collection_(std::exchange(other.collection_, nullptr)), attr_(other.attr_) {}
    lock &operator=(lock &&other) noexcept {
        if (this != &other) {
            end();
            collection_ = std::exchange(other.collection_, nullptr);
            attr_ = other.attr_;
        }
        return *this;
    }
    ~lock() { end(); }

    /** Gives it back now and reports the error. Nothing happens if there is none. */
    void unlock() {
        if (::iov_collection *const c = std::exchange(collection_, nullptr)) {
            check(::iov_unlock(nullptr, c, &attr_));
        }
    }
    /** Whether it is held, as far as this object knows. */
    explicit operator bool() const noexcept { return collection_ != nullptr; }

  private:
    void end() noexcept {
        if (collection_ != nullptr) {
            (void)::iov_unlock(nullptr, collection_, &attr_);
        }
    }

    ::iov_collection *collection_ = nullptr;
    ::iov_lock_attr attr_ = IOV_LOCK_ATTR_INIT;
};

} // namespace iov

#endif
