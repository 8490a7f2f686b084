/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file error.hpp
 * @brief Failures: iov::error, and how one operation of a batch ended.
 */
#ifndef IOVERBS_ERROR_HPP
#define IOVERBS_ERROR_HPP

#include "../ioverbs.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace iov {

/** Whether what failed has taken effect all the same. */
enum class outcome : std::uint8_t {
    pending = IOV_OUTCOME_PENDING,
    applied = IOV_OUTCOME_APPLIED,
    not_applied = IOV_OUTCOME_NOT_APPLIED,
    unknown = IOV_OUTCOME_UNKNOWN
};

/** How an operation of a batch ended (O7). */
enum class op_state : std::uint8_t {
    pending = IOV_OP_PENDING,
    ok = IOV_OP_OK,
    failed = IOV_OP_FAILED,
    skipped = IOV_OP_SKIPPED,
    undone = IOV_OP_UNDONE,
    cancelled = IOV_OP_CANCELLED
};

/**
 * What every function of this interface throws when it cannot do what it was asked for; unless a function says
 * otherwise, nothing has changed for the caller then. It holds copies of its texts: it may be kept, copied and carried
 * to other threads, and copying does not throw. what() is the message and the detail.
 */
class error : public std::runtime_error {
  public:
    /** An error with this code of either sign; detail says what happened and what to do. */
    explicit error(int code, std::string_view detail = {}, std::string_view clause = {},
                   iov::outcome outcome = iov::outcome::not_applied)
        : std::runtime_error(sentence(code, detail)), code_(static_cast<::iov_error>(std::abs(code))),
          outcome_(outcome), message_len_(std::string_view(::iov_strerror(code)).size()) {
        clause.copy(clause_.data(), clause_.size() - 1);
    }

    /** The error of an operation whose status has a code below 0. */
    explicit error(const ::iov_status &status)
        : error(status.code, status.detail, status.clause, static_cast<iov::outcome>(status.outcome)) {}

    /** The error of this thread's last call of ioverbs.h, which returned `code`. */
    static error last(int code) {
        ::iov_status status = IOV_STATUS_INIT;
        if (::iov_error_last(&status) != 0 || status.code != code) {
            return error(code);
        }
        return error(status);
    }

    /** The kind, such as IOV_ENOTFOUND: it says what the caller should do. */
    ::iov_error code() const noexcept { return code_; }
    /** Whether the call has taken effect. */
    iov::outcome outcome() const noexcept { return outcome_; }
    /** The clause behind a refusal or failure, as "C2", or "". Lives as long as the error. */
    std::string_view clause() const noexcept { return clause_.data(); }
    /** The sentence that belongs to the code. Lives as long as the error. */
    std::string_view message() const noexcept { return std::string_view(what()).substr(0, message_len_); }
    /** What happened and what to do; for a refusal also the nearest offer; or "". Lives as long as the error. */
    std::string_view detail() const noexcept {
        const std::string_view all = what();
        return all.size() > message_len_ ? all.substr(message_len_ + 1) : std::string_view();
    }

  private:
    static std::string sentence(int code, std::string_view detail) {
        std::string all = ::iov_strerror(code);
        if (!detail.empty()) {
            (all += ' ').append(detail);
        }
        return all;
    }

    ::iov_error code_;
    iov::outcome outcome_;
    std::size_t message_len_;
    std::array<char, 8> clause_{};
};

/** Throws the error of a call of ioverbs.h that returned a code below 0. For calls made through get(). */
inline void check(int code) {
    if (code < 0) {
        throw error::last(code);
    }
}

/**
 * How one operation of a batch ended. A plain value; its texts belong to the batch and live until that is reset or
 * destroyed.
 */
class op_status {
  public:
    /** Takes what iov_batch_status told. */
    explicit op_status(const ::iov_status &raw) noexcept : raw_(raw) {}

    /** Whether the operation did what it was to do. */
    bool ok() const noexcept { return state() == op_state::ok; }
    /** How it ended. */
    op_state state() const noexcept { return static_cast<op_state>(raw_.state); }
    /** Whether it has taken effect. */
    iov::outcome outcome() const noexcept { return static_cast<iov::outcome>(raw_.outcome); }
    /** 0, or the kind of its failure, such as IOV_ENOTFOUND. */
    int code() const noexcept { return -raw_.code; }
    /** The clause behind a failure, or "". */
    std::string_view clause() const noexcept { return raw_.clause; }
    /** What happened and what to do, or "". */
    std::string_view detail() const noexcept { return raw_.detail; }
    /** The bytes that it moved. */
    std::uint64_t bytes() const noexcept { return raw_.bytes; }
    /** Throws its failure, if it has one. */
    void check() const {
        if (raw_.code != 0) {
            throw error(raw_);
        }
    }
    /** The C struct. */
    const ::iov_status &raw() const noexcept { return raw_; }

  private:
    ::iov_status raw_;
};

} // namespace iov

#endif
