/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cursor.hpp
 * @brief Search results, as they come (O5).
 */
#ifndef IOVERBS_CURSOR_HPP
#define IOVERBS_CURSOR_HPP

#include "options.hpp"

namespace iov {

/** What a name stands for. */
enum class kind : std::uint32_t {
    session = IOV_KIND_SESSION,
    workspace = IOV_KIND_WORKSPACE,
    group = IOV_KIND_GROUP,
    collection = IOV_KIND_COLLECTION
};

/**
 * One search result. It belongs to its cursor and is valid until that takes its next step: in a range-for, until the
 * end of the loop's body. Copy what is to stay.
 */
class entry {
  public:
    /** What was found. */
    iov::kind kind() const noexcept { return static_cast<iov::kind>(raw_.kind); }
    /** Its name, or "" if it has none. */
    std::string_view name() const noexcept { return raw_.name == nullptr ? std::string_view() : raw_.name; }
    /** Its UUID; its text is something to look up. */
    iov::uuid uuid() const noexcept { return iov::uuid(raw_.uuid); }
    /** The group where it was found; zero = the root. */
    iov::uuid group() const noexcept { return iov::uuid(raw_.group); }
    /** The keys that the search asked for. */
    metadata_view metadata() const noexcept { return metadata_view(raw_.metadata); }
    /** The value of a key that the search asked for, see value::as. NOTFOUND, INVALID (other type). */
    template <class T> T get(const text &key) const { return metadata().template get<T>(key); }
    /** The C struct. */
    const ::iov_entry &raw() const noexcept { return raw_; }

  private:
    friend class cursor;
    ::iov_entry raw_ = IOV_ENTRY_INIT;
};

/**
 * A search that streams its results, ended in the destructor. To be gone through once:
 *
 *     for (const iov::entry &found : w.search("temperature > 310"))
 *         std::cout << found.name() << '\n';
 *
 * Waiting for results ends with the session's deadline. Errors are thrown from begin() and ++: TIMEOUT (none yet: ask
 * again through next), STALE (search again). One thread at a time. Iterators end with a move of the cursor.
 */
class cursor {
  public:
    /** An empty one. */
    cursor() noexcept = default;
    /** Takes over a cursor of ioverbs.h. */
    explicit cursor(::iov_cursor *handle) noexcept : handle_(handle) {}

    /** An input iterator over the results. */
    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = entry;
        using difference_type = std::ptrdiff_t;
        using pointer = const entry *;
        using reference = const entry &;

        iterator() noexcept = default;
        reference operator*() const noexcept { return *cursor_->at_; }
        pointer operator->() const noexcept { return cursor_->at_; }
        iterator &operator++() {
            if (!cursor_->advance()) {
                cursor_ = nullptr;
            }
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.cursor_ == b.cursor_; }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return a.cursor_ != b.cursor_; }

      private:
        friend class cursor;
        explicit iterator(cursor *c) noexcept : cursor_(c) {}
        cursor *cursor_ = nullptr;
    };

    /** Takes the first step that was not taken yet. A second call goes on where the first has got to. */
    iterator begin() { return advance() ? iterator(this) : iterator(); }
    /** Behind the last result. */
    iterator end() const noexcept { return {}; }

    /**
     * Takes the next result, or a null pointer at the end. It is valid until the next step. TIMEOUT: none within this
     * time, ask again. STALE: search again.
     */
    template <class Rep, class Period> const entry *next(std::chrono::duration<Rep, Period> timeout) {
        return advance(detail::nanoseconds(timeout)) ? at_ : nullptr;
    }

    /** The cursor, for functions of ioverbs.h; it stays ours. Results taken there are missing here. */
    ::iov_cursor *get() const noexcept { return handle_.get(); }
    /** Whether there is a cursor. */
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /** Ends the search now and reports an error. */
    void close() {
        forget();
        handle_.close();
    }

    cursor(cursor &&other) noexcept : handle_(std::move(other.handle_)) { take(other); }
    cursor &operator=(cursor &&other) noexcept {
        if (this != &other) {
            handle_ = std::move(other.handle_);
            take(other);
        }
        return *this;
    }

  private:
    static constexpr std::size_t page = 32;

    // From result to result; a call of the library when the page is used up.
    bool advance(std::int64_t timeout_ns = -1) {
        if (at_ != nullptr && ++at_ != last_) {
            return true;
        }
        forget();
        if (page_.empty()) {
            page_.resize(page);
        }
        std::size_t n = 0;
        check(::iov_cursor_next(handle_.get(), &page_.front().raw_, page_.size(), &n, timeout_ns));
        if (n > 0) {
            at_ = page_.data();
            last_ = at_ + n;
        }
        return n > 0;
    }
    void forget() noexcept { at_ = last_ = nullptr; }
    void take(cursor &other) noexcept {
        page_ = std::move(other.page_); // which keeps its place, so that the pointers stay good
        at_ = std::exchange(other.at_, nullptr);
        last_ = std::exchange(other.last_, nullptr);
    }

    detail::owner<::iov_cursor, ::iov_cursor_close> handle_;
    std::vector<entry> page_;
    const entry *at_ = nullptr, *last_ = nullptr;
};

} // namespace iov

#endif
