/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file controls.hpp
 * @brief Controls: what is promised about a collection, and what is expected of its use.
 */
#ifndef IOVERBS_CONTROLS_HPP
#define IOVERBS_CONTROLS_HPP

#include "arg.hpp"

namespace iov {

/** When others see a write (C1-C7). */
enum class consistency : std::uint8_t {
    unset = 0,
    sequential = IOV_CONSISTENCY_SEQUENTIAL,
    commit = IOV_CONSISTENCY_COMMIT,
    session = IOV_CONSISTENCY_SESSION,
    eventual = IOV_CONSISTENCY_EVENTUAL
};

/** One holder or many (X1-X3). */
enum class concurrency : std::uint8_t {
    unset = 0,
    shared = IOV_CONCURRENCY_SHARED,
    exclusive = IOV_CONCURRENCY_EXCLUSIVE
};

/** How bytes may change (M2-M4). */
enum class mutability : std::uint8_t {
    unset = 0,
    overwrite = IOV_MUTABILITY_OVERWRITE,
    append = IOV_MUTABILITY_APPEND,
    immutable = IOV_MUTABILITY_IMMUTABLE
};

/** Whole or not at all (M1). */
enum class atomicity : std::uint8_t {
    unset = 0,
    none = IOV_ATOMICITY_NONE,
    unit = IOV_ATOMICITY_UNIT,
    publication = IOV_ATOMICITY_PUBLICATION
};

/** What bytes survive (P1-P4). */
enum class persistence : std::uint8_t {
    unset = 0,
    in_memory = IOV_PERSISTENCE_VOLATILE, /**< `volatile`, which is a word of C++ */
    process = IOV_PERSISTENCE_PROCESS,
    durable = IOV_PERSISTENCE_DURABLE,
    replicated = IOV_PERSISTENCE_REPLICATED
};

/** From when on they survive it (P5). */
enum class persistence_point : std::uint8_t {
    unset = 0,
    close = IOV_POINT_CLOSE,
    request = IOV_POINT_REQUEST,
    batch = IOV_POINT_BATCH,
    by_persist = IOV_POINT_EXPLICIT /**< `explicit`, which is a word of C++ */
};

/** How often the bytes are used (H2). */
enum class temporality : std::uint8_t {
    unset = 0,
    multiple = IOV_TEMPORALITY_MULTIPLE,
    once = IOV_TEMPORALITY_ONCE,
    bursty = IOV_TEMPORALITY_BURSTY
};

/** In which order they are used (H2). */
enum class spatiality : std::uint8_t {
    unset = 0,
    any = IOV_SPATIALITY_ANY,
    contiguous = IOV_SPATIALITY_CONTIGUOUS,
    strided = IOV_SPATIALITY_STRIDED,
    random = IOV_SPATIALITY_RANDOM
};

/** What the failure of an operation means for the others of its batch (B1-B3). */
enum class on_error : std::uint8_t {
    unset = 0,
    proceed = IOV_ON_ERROR_CONTINUE, /**< `continue`, which is a word of C++ */
    stop = IOV_ON_ERROR_STOP,
    rollback = IOV_ON_ERROR_ROLLBACK
};

/**
 * What a program asks for, and what it was granted. A plain value; what is unset is decided by the workspace. Made from
 * a text where that is handy:
 *
 *     w.create("run_1", "profile=checkpoint,consistency=session");
 *     w.create("run_2", iov::controls().set(iov::consistency::session).set(iov::mutability::append));
 */
class controls {
  public:
    /** Nothing is asked for. */
    controls() noexcept : raw_(IOV_CONTROLS_INIT) {}
    /** A copy of the C struct. */
    explicit controls(const ::iov_controls &raw) noexcept : raw_(raw) {}
    /** What the text asks for. INVALID, NOTFOUND (profile). */
    template <class S, std::enable_if_t<std::is_convertible_v<const S &, std::string_view>, int> = 0>
    controls(const S &asked) : controls() {
        parse(asked);
    }

    /** Adds what the text asks for, as "consistency=session,persistence=durable@close". INVALID, NOTFOUND (profile). */
    controls &parse(const text &asked) {
        check(::iov_controls_parse(&raw_, asked.c_str()));
        return *this;
    }
    /** Sets what is unset from a profile: posix, checkpoint, dataset, log, scratch, exchange. NOTFOUND. */
    controls &profile(const text &name) {
        check(::iov_controls_profile(&raw_, name.c_str()));
        return *this;
    }

    /** Sets one control; later calls replace earlier ones. */
    controls &set(iov::consistency value) noexcept { return put(raw_.consistency, value); }
    controls &set(iov::concurrency value) noexcept { return put(raw_.concurrency, value); }
    controls &set(iov::mutability value) noexcept { return put(raw_.mutability, value); }
    controls &set(iov::atomicity value) noexcept { return put(raw_.atomicity, value); }
    controls &set(iov::persistence value) noexcept { return put(raw_.persistence, value); }
    controls &set(iov::persistence_point value) noexcept { return put(raw_.persistence_point, value); }
    controls &set(iov::temporality value) noexcept { return put(raw_.temporality, value); }
    controls &set(iov::spatiality value) noexcept { return put(raw_.spatiality, value); }
    controls &set(iov::on_error value) noexcept { return put(raw_.on_error, value); }

    /** consistency=eventual(T): others see a write T after it at the latest (C4). */
    controls &eventual(std::chrono::nanoseconds t) noexcept {
        raw_.eventual_ns = static_cast<std::uint64_t>(detail::deadline(t));
        return set(iov::consistency::eventual);
    }
    /** atomicity=unit(n): each n bytes are old or new as a whole (M1); 0 lets the system choose n. */
    controls &atomic_unit(std::uint64_t bytes) noexcept {
        raw_.atomic_unit = bytes;
        return set(iov::atomicity::unit);
    }
    /** temporality=bursty: absorbed fast, drained by the deadline (H2). */
    controls &bursty(std::chrono::nanoseconds drain) noexcept {
        raw_.drain_ns = static_cast<std::uint64_t>(detail::deadline(drain));
        return set(iov::temporality::bursty);
    }
    /** spatiality=strided: blocks of `block` bytes whose beginnings are `stride` bytes apart. */
    controls &strided(std::uint64_t stride, std::uint64_t block) noexcept {
        raw_.stride = stride;
        raw_.block = block;
        return set(iov::spatiality::strided);
    }
    /** How large one read or write is, in bytes; 0 = unknown. */
    controls &request_size(std::uint64_t min, std::uint64_t max) noexcept {
        raw_.request_size = {min, max};
        return *this;
    }
    /** How large the collection becomes, in bytes; 0 = unknown; max is enforced (H1). */
    controls &collection_size(std::uint64_t min, std::uint64_t max) noexcept {
        raw_.collection_size = {min, max};
        return *this;
    }

    /** Whether a control has this value, as in `granted.is(iov::consistency::session)`. */
    bool is(iov::consistency value) const noexcept { return raw_.consistency == number(value); }
    bool is(iov::concurrency value) const noexcept { return raw_.concurrency == number(value); }
    bool is(iov::mutability value) const noexcept { return raw_.mutability == number(value); }
    bool is(iov::atomicity value) const noexcept { return raw_.atomicity == number(value); }
    bool is(iov::persistence value) const noexcept { return raw_.persistence == number(value); }
    bool is(iov::persistence_point value) const noexcept { return raw_.persistence_point == number(value); }
    bool is(iov::temporality value) const noexcept { return raw_.temporality == number(value); }
    bool is(iov::spatiality value) const noexcept { return raw_.spatiality == number(value); }
    bool is(iov::on_error value) const noexcept { return raw_.on_error == number(value); }

    /** The text for what is set, which parse() reads. */
    std::string to_string() const {
        return detail::written([this](char *out, std::size_t cap, std::size_t *needed) {
            return ::iov_controls_format(&raw_, out, cap, needed);
        });
    }

    /** The C struct: to read numbers, or to hand it to functions of ioverbs.h. */
    const ::iov_controls &raw() const noexcept { return raw_; }
    /** The same, to be changed. */
    ::iov_controls &raw() noexcept { return raw_; }

  private:
    template <class E> static constexpr std::uint8_t number(E value) noexcept {
        return static_cast<std::uint8_t>(value);
    }
    template <class E> controls &put(std::uint8_t &field, E value) noexcept {
        field = number(value);
        return *this;
    }

    ::iov_controls raw_;
};

} // namespace iov

#endif
