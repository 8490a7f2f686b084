/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file request.hpp
 * @brief Requests: batches that were started (O8).
 */
#ifndef IOVERBS_REQUEST_HPP
#define IOVERBS_REQUEST_HPP

#include "workspace.hpp"

namespace iov {
namespace detail {

inline op_status status_of(const ::iov_batch *b, std::size_t index) {
    ::iov_status out = IOV_STATUS_INIT;
    check(::iov_batch_status(b, index, &out));
    return op_status(out);
}

// Ends a request that may be in flight: gives up what has not taken effect and waits for the rest, until its deadline.
inline void finish(::iov_request *running) noexcept {
    if (running != nullptr && ::iov_request_free(running) == -IOV_EBUSY) {
        (void)::iov_cancel(running);
        (void)::iov_wait(running, -1);
        (void)::iov_request_free(running);
    }
}

// The owner of a batch. It remembers what it started, so that it never goes while buffers are in use.
class batch_handle {
  public:
    batch_handle() noexcept = default;
    explicit batch_handle(::iov_batch *handle) noexcept : handle_(handle) {}
    batch_handle(batch_handle &&other) noexcept
        : handle_(other.release()), running_(std::exchange(other.running_, nullptr)) {}
    batch_handle &operator=(batch_handle &&other) noexcept {
        if (this != &other) {
            end();
            running_ = std::exchange(other.running_, nullptr);
            handle_ = other.release();
        }
        return *this;
    }
    batch_handle(const batch_handle &) = delete;
    batch_handle &operator=(const batch_handle &) = delete;
    ~batch_handle() { end(); }

    /** The batch, for functions of ioverbs.h; it stays ours. A null pointer if this is empty. */
    ::iov_batch *get() const noexcept { return handle_; }
    /** Gives the batch away: the caller frees it. */
    [[nodiscard]] ::iov_batch *release() noexcept { return std::exchange(handle_, nullptr); }
    /** Whether there is a batch. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /** Ends it now and reports BUSY if a request is in flight. Nothing happens to an empty one. */
    void close() {
        check(::iov_batch_free(handle_));
        handle_ = nullptr;
    }

  protected:
    void adopt(::iov_batch *handle) noexcept { handle_ = handle; }
    ::iov_request *begin() {
        check(::iov_batch_start(handle_, &running_));
        return running_;
    }

  private:
    void end() noexcept {
        if (handle_ != nullptr && ::iov_batch_free(handle_) == -IOV_EBUSY) {
            // The request object may still exist; a stale handle in it is recognised as such.
            finish(running_);
            (void)::iov_batch_free(handle_);
        }
        handle_ = nullptr;
    }

    ::iov_batch *handle_ = nullptr;
    ::iov_request *running_ = nullptr;
};

} // namespace detail

/**
 * Something that was started: a batch, or one asynchronous operation. One thread at a time.
 *
 * Until it has completed (wait, test or session::poll said so) the memory that was lent to it must live and be left
 * alone, and what it sets on completion means nothing. The destructor of a request in flight cancels it and waits until
 * it has completed, at most until its deadline: memory that outlives this object is therefore safe, whatever is thrown.
 *
 * A request that has completed, but not with every operation ok, throws PARTIAL from wait and test, each time they are
 * asked; status() tells which. If there is just one operation, its error is thrown instead.
 */
class request {
  public:
    /** An empty one. */
    request() noexcept = default;
    request(request &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), batch_(std::exchange(other.batch_, nullptr)),
          kept_(std::move(other.kept_)) {}
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            detail::finish(handle_);
            handle_ = std::exchange(other.handle_, nullptr);
            batch_ = std::exchange(other.batch_, nullptr);
            kept_ = std::move(other.kept_);
        }
        return *this;
    }
    ~request() { detail::finish(handle_); }

    /** Waits until it has completed, which its deadline sees to. */
    void wait() { told(::iov_wait(handle_, -1)); }
    /** Waits for at most this time. false: not completed, it goes on and the buffers are in use. */
    template <class Rep, class Period> bool wait_for(std::chrono::duration<Rep, Period> timeout) {
        const int code = ::iov_wait(handle_, detail::nanoseconds(timeout));
        if (code == -IOV_ETIMEOUT) {
            return false;
        }
        told(code);
        return true;
    }
    /** The same until a point in time. */
    template <class Clock, class D> bool wait_until(std::chrono::time_point<Clock, D> when) {
        return wait_for(when - Clock::now());
    }
    /** Whether it has completed; never blocks. */
    bool test() {
        int done = 0;
        const int code = ::iov_test(handle_, &done);
        if (done == 0) {
            check(code);
            return false;
        }
        told(code);
        return true;
    }
    /** Asks to give up what has not taken effect. It completes as ever: wait for it. */
    void cancel() { check(::iov_cancel(handle_)); }

    /** How operation `index` ended. BUSY before completion. Its texts live as long as the batch, or as this request if
     *  it was made by an asynchronous call. */
    op_status status(std::size_t index = 0) const { return detail::status_of(batch_, index); }
    /** The bytes that operation `index` moved. BUSY before completion. */
    std::uint64_t bytes(std::size_t index = 0) const { return status(index).bytes(); }

    /** Ends it now. BUSY: in flight. Nothing happens to an empty one. */
    void close() {
        check(::iov_request_free(handle_));
        handle_ = nullptr;
    }
    /** The request, for functions of ioverbs.h and to compare with iov_completion; it stays ours. */
    ::iov_request *get() const noexcept { return handle_; }
    /** Whether there is a request. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }

  private:
    friend class batch;
    request(::iov_request *handle, ::iov_batch *b, detail::batch_handle &&kept) noexcept
        : handle_(handle), batch_(b), kept_(std::move(kept)) {}

    void told(int code) const {
        if (code == -IOV_EPARTIAL && ::iov_batch_count(batch_) == 1) {
            status().check();
        }
        check(code);
    }

    ::iov_request *handle_ = nullptr;
    ::iov_batch *batch_ = nullptr;
    detail::batch_handle kept_; // of an asynchronous call
};

} // namespace iov

#endif
