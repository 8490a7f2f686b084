/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: what they carry, for how long, and what is refused before the C library sees it. */
#include "test.hpp"

#include <thread>

static void test_kind_message_and_detail() {
    iov::session s = iov::open("mem:errors");
    const iov::error e = THROWS(NOTFOUND, s.load_workspace("nowhere"));
    CHECK(e.code() == IOV_ENOTFOUND && e.outcome() == iov::outcome::not_applied);
    CHECK(e.message() == ::iov_strerror(IOV_ENOTFOUND));
    CHECK(contains(e.detail(), "nowhere"));
    CHECK(e.what() == std::string(e.message()) + " " + std::string(e.detail()));
    try {
        (void)iov::open("gopher://host");
        CHECK(false);
    } catch (const std::runtime_error &standard) { /* those who know nothing of us can catch it */
        CHECK(contains(standard.what(), "gopher"));
    }
}

static void test_refusals_name_the_clause() {
    iov::session s = iov::open("mem:errors");
    iov::workspace w = s.create_workspace("refusals");
    const iov::error e = THROWS(REFUSED, w.create("c", "persistence=durable"));
    CHECK(e.clause() == "P3");
    CHECK(contains(e.detail(), "volatile"));
    s.close();
    w.close();
}

static void test_an_error_outlives_what_it_tells_of() {
    std::exception_ptr carried;
    std::thread([&carried] {
        try {
            iov::session s = iov::open("mem:errors");
            (void)s.load_workspace("elsewhere");
        } catch (...) {
            carried = std::current_exception();
        }
    }).join();
    try {
        std::rethrow_exception(carried);
    } catch (const iov::error &e) {
        const iov::error copy = e;
        (void)THROWS(INVALID, iov::open("nonsense")); /* a later failure changes nothing in it */
        CHECK(contains(copy.detail(), "elsewhere") && copy.code() == IOV_ENOTFOUND);
    }
    static_assert(std::is_nothrow_copy_constructible_v<iov::error>, "exceptions are copied while others are thrown");
}

static void test_made_by_hand() {
    const iov::error plain(IOV_EBUSY);
    CHECK(plain.code() == IOV_EBUSY && plain.detail().empty() && plain.clause().empty());
    CHECK(plain.message() == std::string_view(plain.what()));
    const iov::error negative(-IOV_EFENCED, "why", "X1", iov::outcome::unknown);
    CHECK(negative.code() == IOV_EFENCED && negative.detail() == "why" && negative.clause() == "X1");
    CHECK(negative.outcome() == iov::outcome::unknown);
    const iov::error long_clause(IOV_EBUSY, "", "far too long for a clause");
    CHECK(long_clause.clause() == "far too");
    iov::check(0);
    iov::check(7); /* a descriptor, say */
    (void)THROWS(INVALID, iov::check(::iov_close(reinterpret_cast<::iov_session *>(std::uintptr_t{64}))));
    (void)THROWS(LOST, iov::check(-IOV_ELOST)); /* another call's detail is not taken for this one's */
}

static void test_texts() {
    iov::session s = iov::open("mem:errors");
    iov::workspace w = s.create_workspace("texts");
    const iov::error e = THROWS(INVALID, w.create("a\0b"sv));
    CHECK(contains(e.detail(), "byte 1"));
    (void)THROWS(INVALID, w.create(std::string("a\0b", 3)));
    const std::string all = "first,second";
    iov::collection first = w.create(std::string_view(all).substr(0, 5)); /* no NUL behind it */
    CHECK(first.get_metadata<std::string>("iov.name") == "first");
    const std::string longest(255, 'n'), longer(256, 'n');
    (void)w.create(std::string_view(longest));
    CHECK(w.lookup(longest).size() == 0);
    (void)THROWS(INVALID, w.create(std::string_view(longer)));
    (void)THROWS(INVALID, w.create(""));
    CHECK(iov::text(nullptr).c_str() == nullptr && *iov::text(""sv).c_str() == '\0');
}

static void test_version() { CHECK(iov::version() == ::iov_version() && !iov::version().empty()); }

MAIN(RUN(test_kind_message_and_detail);
     RUN(test_refusals_name_the_clause);
     RUN(test_an_error_outlives_what_it_tells_of);
     RUN(test_made_by_hand);
     RUN(test_texts);
     RUN(test_version);)
