/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file metadata.hpp
 * @brief Typed key-value pairs (O4).
 */
#ifndef IOVERBS_METADATA_HPP
#define IOVERBS_METADATA_HPP

#include "arg.hpp"
#include "handle.hpp"

#include <initializer_list>
#include <optional>

namespace iov {

/** The type of a metadata value. */
enum class value_type : std::uint32_t {
    none = 0,
    string = IOV_TYPE_STR,
    integer = IOV_TYPE_I64,
    real = IOV_TYPE_F64,
    boolean = IOV_TYPE_BOOL,
    bytes = IOV_TYPE_BYTES,
    time = IOV_TYPE_TIME
};

/**
 * One metadata value, to be passed in or taken out. Numbers, truth values and times are in it; of a string or of bytes
 * it holds the place only, as std::string_view does: the text passed in, or the container that a result came from, must
 * live as long as the value is used.
 */
class value {
  public:
    /** No value. */
    value() noexcept : raw_(IOV_VALUE_INIT) {}
    /** A copy of the C struct. */
    explicit value(const ::iov_value &raw) noexcept : raw_(raw) {}
    /** true or false. */
    template <class T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0> value(T b) noexcept : value() {
        raw_.type = IOV_TYPE_BOOL;
        raw_.boolean = b ? 1 : 0;
    }
    /** An integer. INVALID if it is above the largest std::int64_t. */
    template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
    value(T n) : value() {
        if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(std::int64_t)) {
            if (n > static_cast<T>(std::numeric_limits<std::int64_t>::max())) {
                throw error(IOV_EINVALID, "integers in metadata have 64 bits and a sign: " + std::to_string(n));
            }
        }
        raw_.type = IOV_TYPE_I64;
        raw_.i64 = static_cast<std::int64_t>(n);
    }
    /** A floating-point number. */
    template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0> value(T x) noexcept : value() {
        raw_.type = IOV_TYPE_F64;
        raw_.f64 = static_cast<double>(x);
    }
    /** A timestamp. */
    template <class D>
    value(std::chrono::time_point<std::chrono::system_clock, D> t) noexcept : value() {
        raw_.type = IOV_TYPE_TIME;
        raw_.time_ns = std::chrono::time_point_cast<std::chrono::nanoseconds>(t).time_since_epoch().count();
    }
    /** A string. */
    template <class S, std::enable_if_t<std::is_convertible_v<const S &, std::string_view>, int> = 0>
    value(const S &source) : value() {
        const std::string_view view = source;
        raw_.type = IOV_TYPE_STR;
        raw_.len = view.size();
        raw_.str = view.empty() ? "" : view.data();
    }
    value(std::nullptr_t) = delete;
    /** Bytes. */
    static value of_bytes(const_buffer bytes) noexcept {
        value out;
        out.raw_.type = IOV_TYPE_BYTES;
        out.raw_.len = bytes.size();
        out.raw_.bytes = bytes.data();
        return out;
    }

    /** Its type. */
    value_type type() const noexcept { return static_cast<value_type>(raw_.type); }

    /**
     * The value as a T: bool; an integer type; float or double; time_point; std::string or std::string_view;
     * const_buffer for bytes. No type is converted into another: INVALID if it is of another type, or does not fit.
     */
    template <class T> T as() const {
        if constexpr (std::is_same_v<T, bool>) {
            return expect(value_type::boolean).boolean != 0;
        } else if constexpr (std::is_integral_v<T>) {
            return fitting<T>(expect(value_type::integer).i64);
        } else if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(expect(value_type::real).f64);
        } else if constexpr (std::is_same_v<T, time_point>) {
            return time_point(std::chrono::nanoseconds(expect(value_type::time).time_ns));
        } else if constexpr (std::is_same_v<T, const_buffer>) {
            const ::iov_value &v = expect(value_type::bytes);
            return const_buffer(v.bytes, v.len);
        } else {
            static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>,
                          "metadata are bool, integer, float, time_point, string or const_buffer");
            const ::iov_value &v = expect(value_type::string);
            return T(v.str, v.len);
        }
    }

    /** The C struct. */
    const ::iov_value &raw() const noexcept { return raw_; }

  private:
    const ::iov_value &expect(value_type wanted) const {
        if (type() != wanted) {
            static const char *const names[] = {"no value", "a string", "an integer", "a float",
                                                "a bool",   "bytes",    "a timestamp"};
            const auto name = [](value_type t) {
                const auto i = static_cast<std::size_t>(t);
                return i < std::size(names) ? names[i] : "of a later release";
            };
            throw error(IOV_EINVALID, std::string("the value is ") + name(type()) + ", not " + name(wanted));
        }
        return raw_;
    }
    template <class T> static T fitting(std::int64_t n) {
        const T out = static_cast<T>(n);
        if (static_cast<std::int64_t>(out) != n || (out < T()) != (n < 0)) {
            throw error(IOV_EINVALID, std::to_string(n) + " does not fit into the integer type that was asked for");
        }
        return out;
    }

    ::iov_value raw_;
};

/** A key and its value, as a set of pairs tells them: both live as long as the set and are not changed in it. */
struct metadata_pair {
    std::string_view key;
    iov::value value;
};

/**
 * Pairs that belong to somebody else, such as a search result or a metadata object: valid as long as that is. One
 * thread at a time.
 */
class metadata_view {
  public:
    /** No pairs. */
    metadata_view() noexcept = default;
    /** Refers to a set of ioverbs.h. */
    explicit metadata_view(const ::iov_metadata *pairs) noexcept : pairs_(pairs) {}

    /** The number of pairs. */
    std::size_t size() const noexcept { return pairs_ == nullptr ? 0 : ::iov_metadata_count(pairs_); }
    /** Whether there are none. */
    bool empty() const noexcept { return size() == 0; }
    /** The value of a key, if there is one; it refers to the set. */
    std::optional<value> find(const text &key) const {
        ::iov_value out = IOV_VALUE_INIT;
        const int code = pairs_ == nullptr ? -IOV_ENOTFOUND : ::iov_metadata_find(pairs_, key.c_str(), &out);
        if (code == -IOV_ENOTFOUND) {
            return std::nullopt;
        }
        check(code);
        return value(out);
    }
    /** The value of a key as a T, see value::as. NOTFOUND, INVALID (other type). */
    template <class T> T get(const text &key) const {
        const std::optional<value> found = find(key);
        if (!found) {
            throw error(IOV_ENOTFOUND, std::string("there is no key \"") + key.c_str() + "\" in these metadata");
        }
        return found->as<T>();
    }

    /** Steps through the pairs in the order of keys. */
    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = metadata_pair;
        using difference_type = std::ptrdiff_t;
        using pointer = const metadata_pair *;
        using reference = const metadata_pair &;

        iterator() noexcept = default;
        reference operator*() const noexcept { return pair_; }
        pointer operator->() const noexcept { return &pair_; }
        iterator &operator++() {
            step();
            return *this;
        }
        iterator operator++(int) {
            iterator before = *this;
            step();
            return before;
        }
        friend bool operator==(const iterator &a, const iterator &b) noexcept {
            return a.pairs_ == b.pairs_ && (a.pairs_ == nullptr || a.position_ == b.position_);
        }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return !(a == b); }

      private:
        friend class metadata_view;
        explicit iterator(const ::iov_metadata *pairs) : pairs_(pairs) { step(); }
        void step() {
            const char *key = nullptr;
            ::iov_value out = IOV_VALUE_INIT;
            const int code = pairs_ == nullptr ? -IOV_ENOTFOUND : ::iov_metadata_next(pairs_, &position_, &key, &out);
            if (code == -IOV_ENOTFOUND) {
                *this = iterator();
                return;
            }
            check(code);
            pair_ = {key, value(out)};
        }

        const ::iov_metadata *pairs_ = nullptr;
        std::size_t position_ = 0;
        metadata_pair pair_;
    };

    /** The first pair. */
    iterator begin() const { return iterator(pairs_); }
    /** Behind the last pair. */
    iterator end() const noexcept { return iterator(); }
    /** The set, for functions of ioverbs.h, or a null pointer. */
    const ::iov_metadata *get() const noexcept { return pairs_; }

  private:
    const ::iov_metadata *pairs_ = nullptr;
};

namespace detail {
inline int free_metadata(::iov_metadata *md) {
    ::iov_metadata_free(md);
    return 0;
}
} // namespace detail

/**
 * Pairs of one's own, freed in the destructor. Calls copy what they need, so that it may change or go right after them.
 * One thread at a time.
 *
 *     iov::metadata md{{"temperature", 310}, {"experiment", "nacelle"}, {"begun", std::chrono::system_clock::now()}};
 */
class metadata {
  public:
    /** No pairs. EXHAUSTED. */
    metadata() : handle_(::iov_metadata_new()) {
        if (!handle_) {
            throw error(IOV_EEXHAUSTED, "there is no memory for metadata");
        }
    }
    /** These pairs. INVALID (key, text), TOOBIG. */
    metadata(std::initializer_list<metadata_pair> pairs) : metadata() {
        for (const metadata_pair &p : pairs) {
            set(p.key, p.value);
        }
    }
    /** Takes over a set of ioverbs.h. */
    explicit metadata(::iov_metadata *handle) noexcept : handle_(handle) {}

    /** Sets a key of 1 to 255 bytes, not beginning with "iov.", in place of an earlier value. INVALID, TOOBIG. */
    metadata &set(const text &key, const value &v) {
        ::iov_metadata *md = handle_.get();
        const ::iov_value &raw = v.raw();
        switch (v.type()) {
        case value_type::string:
            check(::iov_metadata_set_str(md, key.c_str(), text(v.as<std::string_view>()).c_str()));
            break;
        case value_type::integer: check(::iov_metadata_set_i64(md, key.c_str(), raw.i64)); break;
        case value_type::real: check(::iov_metadata_set_f64(md, key.c_str(), raw.f64)); break;
        case value_type::boolean: check(::iov_metadata_set_bool(md, key.c_str(), raw.boolean != 0)); break;
        case value_type::bytes: check(::iov_metadata_set_bytes(md, key.c_str(), raw.bytes, raw.len)); break;
        case value_type::time: check(::iov_metadata_set_time(md, key.c_str(), raw.time_ns)); break;
        default: throw error(IOV_EINVALID, "the value to set is none");
        }
        return *this;
    }

    /** All pairs; valid until this object changes or ends. */
    metadata_view view() const noexcept { return metadata_view(handle_.get()); }
    /** The same, for functions that take a view. */
    operator metadata_view() const noexcept { return view(); }
    /** As metadata_view. */
    std::size_t size() const noexcept { return view().size(); }
    bool empty() const noexcept { return view().empty(); }
    std::optional<value> find(const text &key) const { return view().find(key); }
    template <class T> T get(const text &key) const { return view().template get<T>(key); }
    metadata_view::iterator begin() const { return view().begin(); }
    metadata_view::iterator end() const noexcept { return view().end(); }

    /** The set, for functions of ioverbs.h; it stays ours. */
    ::iov_metadata *get() const noexcept { return handle_.get(); }

  private:
    detail::owner<::iov_metadata, detail::free_metadata> handle_;
};

} // namespace iov

#endif
