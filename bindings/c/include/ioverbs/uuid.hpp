/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file uuid.hpp
 * @brief UUIDs of workspaces, groups, collections and batches.
 */
#ifndef IOVERBS_UUID_HPP
#define IOVERBS_UUID_HPP

#include "arg.hpp"

namespace iov {

/** A UUID. A plain value. */
class uuid {
  public:
    /** All zeros: none. */
    uuid() noexcept : raw_{} {}
    /** A copy of the C struct. */
    explicit uuid(const ::iov_uuid &raw) noexcept : raw_(raw) {}

    /** A new one of version 7, as batch ids must be. */
    static uuid make() {
        uuid out;
        check(::iov_uuid_new(&out.raw_));
        return out;
    }
    /** Reads "uuid:" and 36 characters. INVALID. */
    static uuid parse(const text &from) {
        uuid out;
        check(::iov_uuid_parse(from.c_str(), &out.raw_));
        return out;
    }
    /** "uuid:" and 36 characters: what functions take that look up by name or UUID. */
    std::string to_string() const {
        char out[IOV_UUID_TEXT];
        check(::iov_uuid_format(&raw_, out));
        return out;
    }

    /** Whether it is not all zeros. */
    explicit operator bool() const noexcept { return *this != uuid(); }
    /** The C struct. */
    const ::iov_uuid &raw() const noexcept { return raw_; }

    friend bool operator==(const uuid &a, const uuid &b) noexcept { return compare(a, b) == 0; }
    friend bool operator!=(const uuid &a, const uuid &b) noexcept { return compare(a, b) != 0; }
    /** By bytes; those that make() gives grow with time. */
    friend bool operator<(const uuid &a, const uuid &b) noexcept { return compare(a, b) < 0; }

  private:
    static int compare(const uuid &a, const uuid &b) noexcept {
        return std::memcmp(a.raw_.bytes, b.raw_.bytes, sizeof a.raw_.bytes);
    }

    ::iov_uuid raw_;
};

} // namespace iov

#endif
