/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: what may lend them, and all that is done with them by blocking calls. */
#include "test.hpp"

#include <array>
#include <list>

struct sample {
    double x;
    std::int32_t i;
    std::int32_t j;
};

template <class T> constexpr bool readable = std::is_convertible_v<T, iov::const_buffer>;
template <class T> constexpr bool writable = std::is_convertible_v<T, iov::mutable_buffer>;

static_assert(readable<std::vector<double> &> && writable<std::vector<double> &>);
static_assert(readable<const std::vector<double> &> && !writable<const std::vector<double> &>);
static_assert(readable<std::array<sample, 3> &> && readable<int (&)[4]> && writable<int (&)[4]>);
static_assert(writable<char (&)[4]>);
static_assert(readable<std::string_view> && !writable<std::string_view> && writable<std::string &>);
static_assert(readable<iov::mutable_buffer> && !writable<iov::const_buffer>);
/* gone at the end of the statement, or not bytes, or not in one piece, or with a NUL that nobody means */
static_assert(!readable<std::vector<double>> && !readable<std::string> && !writable<std::array<int, 2>>);
static_assert(!readable<std::vector<std::string> &> && !readable<std::list<int> &>);
static_assert(!readable<int> && !readable<int *>);
static_assert(!readable<const char (&)[5]> && !readable<std::vector<bool> &>);
#ifdef __cpp_lib_span
static_assert(readable<std::span<const int>> && writable<std::span<int>> && !writable<std::span<const int>>);
static_assert(readable<std::span<sample, 2>> && writable<std::span<std::byte>>);
#endif

static iov::session s;
static iov::workspace w;

static void test_no_copies_of_what_is_lent() {
    std::vector<double> v(3);
    const iov::const_buffer from = v;
    const iov::mutable_buffer to = v;
    CHECK(from.data() == v.data() && from.size() == 24 && to.data() == v.data() && to.size() == 24);
    sample one{};
    CHECK(iov::bytes_of(one).data() == &one && iov::bytes_of(std::as_const(one)).size() == sizeof one);
    CHECK(iov::const_buffer().size() == 0 && iov::const_buffer(v.data(), 7).size() == 7);
}

static void test_o6_typed_reads_and_writes() {
    iov::collection c = w.create("typed");
    std::array<sample, 3> out{{{1.5, 1, 2}, {2.5, 3, 4}, {3.5, 5, 6}}}, in{};
    c.write(0, out);
    CHECK(c.size() == sizeof out && c.read(0, in) == sizeof in && in[2].x == 3.5 && in[1].j == 4);
    sample one{};
    CHECK(c.read(sizeof(sample), iov::bytes_of(one)) == sizeof one && one.i == 3);
    one.i = 30;
    c.write(sizeof(sample), iov::bytes_of(one));
    const int numbers[4] = {1, 2, 3, 4};
    int more[5] = {};
    c.write(1000, numbers);
    CHECK(c.read(1000, more) == 16 && more[3] == 4 && more[4] == 0); /* short at the end */
    CHECK(c.read(5000, more) == 0);
    char hole[8] = "xxxxxxx";
    CHECK(c.read(100, hole) == 8 && std::string_view(hole, 8) == std::string(8, '\0'));
    const char *raw = "pointer and length";
    c.write(0, {raw, 7});
    CHECK(text_of(c, 0, 7) == "pointer");
#ifdef __cpp_lib_span
    std::span<const int> some(numbers + 1, 2);
    c.write(2000, some);
    CHECK(c.read(2000, std::span<int>(more, 2)) == 8 && more[0] == 2 && more[1] == 3);
#endif
}

static void test_vectors() {
    iov::collection c = w.create("vectors");
    const std::string a = "AAA", b = "BBB";
    std::string x(3, ' '), y(8, ' ');
    const ::iov_chunk out[] = {iov::write_chunk(100, a), iov::write_chunk(0, b)};
    CHECK(c.writev(out, 2) == 6 && c.size() == 103);
    const std::vector<::iov_chunk> in = {iov::chunk(0, x), iov::chunk(98, y)};
    CHECK(c.readv(in.data(), in.size()) == 8 && x == "BBB" && y.substr(2, 3) == "AAA");
}

static void test_m4_append() {
    iov::collection c = w.create("log", "mutability=append");
    CHECK(c.append("first"sv) == 0 && c.append("second"sv) == 5);
    (void)THROWS(IMMUTABLE, c.write(0, "x"sv));
    CHECK(text_of(c) == "firstsecond");
}

static void test_shape() {
    iov::collection c = w.create("shape");
    const std::string block(65536, 'x');
    c.write(0, block);
    c.truncate(200000);
    c.punch(16384, 16384);
    CHECK(c.size() == 200000);
    std::uint64_t end = 0;
    for (const ::iov_extent &e : c.extents(0, 200000)) {
        CHECK(e.offset == end && e.len > 0);
        end = e.offset + e.len;
    }
    CHECK(end == 200000);
    CHECK(c.extents().size() >= 4 && c.extents(5, 0).empty() && c.extents(300000, 10).empty());
    (void)THROWS(INVALID, c.extents(UINT64_MAX));
    c.allocate(0, 1 << 20, IOV_ALLOCATE_KEEP_SIZE);
    CHECK(c.size() == 200000);
    c.allocate(0, 1 << 20);
    CHECK(c.size() == 1 << 20);
    iov::collection many = w.create("many extents");
    for (std::uint64_t i = 0; i < 100; i++) { /* more than one page of them */
        many.write(i * 131072, block);
    }
    const std::vector<::iov_extent> all = many.extents();
    CHECK(all.size() >= 199 && all.back().offset + all.back().len == 99 * 131072 + 65536);
}

static void test_copy() {
    iov::collection a = w.create("source"), b = w.create("target");
    a.write(0, "0123456789"sv);
    CHECK(a.copy_to(2, b, 5, 4) == 4 && text_of(b, 5) == "2345" && a.copy_to(8, b, 0, 100) == 2);
}

static void test_m1_m2_publication_and_seal() {
    iov::collection c = w.create("published", "atomicity=publication"), reader = w.lookup("published");
    c.write(0, "version 1"sv);
    CHECK(reader.size() == 0);
    c.commit();
    CHECK(text_of(reader) == "version 1");
    c.persist();
    iov::collection d = w.create("sealed", iov::controls().set(iov::mutability::immutable));
    d.write(0, "for good"sv);
    d.seal();
    CHECK(d.stat().state == IOV_STATE_SEALED);
    (void)THROWS(IMMUTABLE, d.write(0, "x"sv));
}

static void test_h1_the_limit_is_enforced() {
    iov::collection c = w.create("limited", iov::controls().collection_size(0, 100));
    const std::string block(101, 'x');
    (void)THROWS(FILETOOBIG, c.write(0, block));
    c.write(0, {block.data(), 100});
    CHECK(c.size() == 100);
}

MAIN(s = iov::open("mem:data"); w = s.create_workspace("ws");
     RUN(test_no_copies_of_what_is_lent);
     RUN(test_o6_typed_reads_and_writes);
     RUN(test_vectors);
     RUN(test_m4_append);
     RUN(test_shape);
     RUN(test_copy);
     RUN(test_m1_m2_publication_and_seal);
     RUN(test_h1_the_limit_is_enforced);)
