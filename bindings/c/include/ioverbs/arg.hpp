/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file arg.hpp
 * @brief What functions take: texts, memory and times.
 */
#ifndef IOVERBS_ARG_HPP
#define IOVERBS_ARG_HPP

#include "error.hpp"

#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

namespace iov {

/** Nanoseconds since 1970 (UTC), as timestamps in metadata are. */
using time_point = std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>;

/**
 * A text argument, made from `const char *`, `std::string` or anything that converts to `std::string_view`. Only the
 * last is copied, because the C library needs its NUL. nullptr is "no text" where a function allows that. Throws
 * INVALID if the text has a NUL inside. For arguments: it refers to what it was made from.
 */
class text {
  public:
    /** No text. */
    text(std::nullptr_t) noexcept {}
    /** A text that ends with NUL; a null pointer is no text. */
    text(const char *s) noexcept : chars_(s) {}
    /** A string, not copied. */
    text(const std::string &s) : chars_(s.c_str()) { check_inside(s); }
    /** Characters without NUL at the end: copied. */
    template <class S, std::enable_if_t<std::is_convertible_v<const S &, std::string_view> &&
                                            !std::is_convertible_v<const S &, const char *> &&
                                            !std::is_convertible_v<const S &, const std::string &>,
                                        int> = 0>
    text(const S &source) {
        const std::string_view view = source;
        check_inside(view);
        if (view.size() < sizeof small_) {
            view.copy(small_, view.size());
            small_[view.size()] = '\0';
            chars_ = small_;
        } else {
            large_ = view;
            chars_ = large_.c_str();
        }
    }
    text(const text &) = delete;
    text &operator=(const text &) = delete;

    /** The characters, with NUL at the end; or a null pointer. */
    const char *c_str() const noexcept { return chars_; }

  private:
    static void check_inside(std::string_view s) {
        const std::size_t at = s.find('\0');
        if (at != std::string_view::npos) {
            throw error(IOV_EINVALID, "a text holds a NUL at byte " + std::to_string(at) + ": leave it out");
        }
    }

    const char *chars_ = nullptr;
    char small_[256]; // as long as a name may be, and its NUL
    std::string large_;
};

namespace detail {

template <class R> using element_of = std::remove_pointer_t<decltype(std::data(std::declval<R &>()))>;

template <class R, class = void> struct has_bytes : std::false_type {};
template <class R>
struct has_bytes<R, std::void_t<element_of<R>, decltype(std::size(std::declval<R &>()))>>
    : std::is_trivially_copyable<element_of<R>> {};

// A range that may die before what it refers to.
template <class R> struct is_borrowed : std::false_type {};
template <class C> struct is_borrowed<std::basic_string_view<C>> : std::true_type {};
#ifdef __cpp_lib_span
template <class T, std::size_t N> struct is_borrowed<std::span<T, N>> : std::true_type {};
#endif

template <class R>
constexpr bool lends_bytes =
    has_bytes<std::remove_reference_t<R>>::value &&
    (std::is_lvalue_reference_v<R> || is_borrowed<std::remove_cv_t<std::remove_reference_t<R>>>::value);

template <class R, bool = lends_bytes<R>> constexpr bool lends_writable = false;
template <class R>
constexpr bool lends_writable<R, true> = !std::is_const_v<element_of<std::remove_reference_t<R>>>;

// Strings of a C array of pointers, as attribute structs want them.
inline std::vector<const char *> pointers(const std::vector<std::string> &texts) {
    std::vector<const char *> out;
    out.reserve(texts.size());
    for (const std::string &t : texts) {
        out.push_back(t.c_str());
    }
    return out;
}

// An empty text in an attribute struct is one that was not given.
inline const char *or_null(const std::string &text) noexcept { return text.empty() ? nullptr : text.c_str(); }

// A time from now on as C wants it: never negative, which means something else there, and as long as can be said.
template <class Rep, class Period> std::int64_t nanoseconds(std::chrono::duration<Rep, Period> time) {
    const std::chrono::duration<long double, std::nano> exact(time);
    if (!(exact.count() > 0)) {
        return 0;
    }
    if (exact.count() >= 9.2e18L) {
        return std::numeric_limits<std::int64_t>::max();
    }
    return std::chrono::ceil<std::chrono::nanoseconds>(time).count();
}

// A deadline in an attribute struct, where 0 means the default: one that has passed is the shortest there is.
inline std::int64_t deadline(std::chrono::nanoseconds time) noexcept { return time.count() > 0 ? time.count() : 1; }

// A text that C writes into a buffer whose size is not known before; `write` takes buffer, size and needed.
template <class Write> std::string written(Write write) {
    std::string out(255, '\0');
    std::size_t needed = 0;
    for (;;) {
        const int code = write(out.data(), out.size() + 1, &needed);
        if (code == -IOV_ETOOBIG && needed > out.size() + 1) {
            out.resize(needed - 1);
            continue;
        }
        check(code);
        out.resize(needed - 1);
        return out;
    }
}

} // namespace detail

class mutable_buffer;

/**
 * Bytes to be read: a pointer and a number of bytes, or any contiguous range (array, vector, string, span) of a type
 * that may be copied as bytes. It refers to the memory and never copies it; a range that would be gone at the end of
 * the statement is not taken, nor is a string literal, whose NUL nobody means (say `"text"sv`).
 */
class const_buffer {
  public:
    /** No bytes. */
    constexpr const_buffer() noexcept = default;
    /** `bytes` bytes from here on. */
    constexpr const_buffer(const void *data, std::size_t bytes) noexcept : data_(data), size_(bytes) {}
    /** The bytes of a contiguous range. */
    template <class R, std::enable_if_t<detail::lends_bytes<R &&>, int> = 0>
    constexpr const_buffer(R &&range) noexcept
        : data_(std::data(range)), size_(std::size(range) * sizeof(*std::data(range))) {}
    template <std::size_t N> const_buffer(const char (&)[N]) = delete;
    /** Memory that may be written may be read. */
    constexpr const_buffer(const mutable_buffer &buffer) noexcept;

    /** The first byte. */
    constexpr const void *data() const noexcept { return data_; }
    /** The number of bytes. */
    constexpr std::size_t size() const noexcept { return size_; }

  private:
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

/** Bytes to be written; as const_buffer, for a range whose elements are not const. */
class mutable_buffer {
  public:
    /** No bytes. */
    constexpr mutable_buffer() noexcept = default;
    /** `bytes` bytes from here on. */
    constexpr mutable_buffer(void *data, std::size_t bytes) noexcept : data_(data), size_(bytes) {}
    /** The bytes of a contiguous range. */
    template <class R, std::enable_if_t<detail::lends_writable<R &&>, int> = 0>
    constexpr mutable_buffer(R &&range) noexcept
        : data_(std::data(range)), size_(std::size(range) * sizeof(*std::data(range))) {}

    /** The first byte. */
    constexpr void *data() const noexcept { return data_; }
    /** The number of bytes. */
    constexpr std::size_t size() const noexcept { return size_; }

  private:
    void *data_ = nullptr;
    std::size_t size_ = 0;
};

constexpr const_buffer::const_buffer(const mutable_buffer &buffer) noexcept
    : data_(buffer.data()), size_(buffer.size()) {}

/** The bytes of one object, such as a struct without pointers. */
template <class T, std::enable_if_t<std::is_trivially_copyable_v<T>, int> = 0>
const_buffer bytes_of(const T &object) noexcept {
    return {std::addressof(object), sizeof object};
}

/** The same, to be written. */
template <class T, std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_const_v<T>, int> = 0>
mutable_buffer bytes_of(T &object) noexcept {
    return {std::addressof(object), sizeof object};
}

/** A chunk (O6) to be read into memory. */
inline ::iov_chunk chunk(std::uint64_t offset, mutable_buffer memory) noexcept {
    return {offset, memory.data(), memory.size()};
}

/** A chunk (O6) to be written from memory, which is only read. */
inline ::iov_chunk write_chunk(std::uint64_t offset, const_buffer memory) noexcept {
    return {offset, const_cast<void *>(memory.data()), memory.size()};
}

} // namespace iov

#endif
