/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership: what ends when, what is left after a move, and destructors that meet errors. */
#include "test.hpp"

#include <chrono>
#include <thread>

template <class T> constexpr bool move_only =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_destructible_v<T> &&
    std::is_nothrow_default_constructible_v<T>;

static_assert(move_only<iov::session> && move_only<iov::workspace> && move_only<iov::group>);
static_assert(move_only<iov::collection> && move_only<iov::cursor> && move_only<iov::batch>);
static_assert(move_only<iov::request> && move_only<iov::lock> && move_only<iov::buffer>);
static_assert(move_only<iov::registration> && move_only<iov::view>);
static_assert(!std::is_copy_constructible_v<iov::metadata> && std::is_nothrow_move_constructible_v<iov::metadata>);

/* The handle is no longer one. */
static bool closed(::iov_collection *c) {
    ::iov_stat stat = IOV_STAT_INIT;
    return ::iov_collection_stat(nullptr, c, &stat) == -IOV_EINVALID;
}

static void test_destructors_close() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("closes");
    ::iov_collection *raw = nullptr;
    {
        iov::collection c = w.create("c", "atomicity=publication");
        raw = c.get();
        c.write(0, "published by the close"sv);
        CHECK(!closed(raw));
    }
    CHECK(closed(raw));
    CHECK(text_of(w.lookup("c")) == "published by the close");
    try {
        iov::collection c = w.create("d");
        raw = c.get();
        throw 1;
    } catch (int) {
        CHECK(closed(raw)); /* on the way of an exception, too */
    }
}

static void test_moves() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("moves");
    iov::collection a = w.create("a"), b = w.create("b");
    ::iov_collection *const raw_a = a.get(), *const raw_b = b.get();
    iov::collection moved = std::move(a);
    CHECK(!a && moved && moved.get() == raw_a && !closed(raw_a));
    moved = std::move(b); /* what it held is closed */
    CHECK(closed(raw_a) && moved.get() == raw_b && !closed(raw_b));
    iov::collection &self = moved;
    moved = std::move(self);
    CHECK(moved.get() == raw_b && !closed(raw_b));
    std::vector<iov::collection> many;
    for (int i = 0; i < 20; i++) {
        many.push_back(w.create("many " + std::to_string(i)));
    }
    many.erase(many.begin());
    CHECK(many[0].get_metadata<std::string>("iov.name") == "many 1");
    iov::session later = std::move(s);
    iov::workspace v = later.load_workspace("moves");
    std::swap(v, w);
    (void)v.lookup("b");
    (void)w.lookup("b");
}

/* To the C library a null pointer is a root, a "now", or nothing to do: none of that may come from an empty object. */
static void test_moved_from_objects_are_refused() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("moved from");
    iov::collection c = w.create("c");
    iov::group g = w.create_group("g");
    iov::batch b(s);
    iov::metadata md{{"k", 1}};
    const iov::session s2 = std::move(s);
    iov::workspace w2 = std::move(w);
    const iov::collection c2 = std::move(c);
    const iov::group g2 = std::move(g);
    iov::batch b2 = std::move(b);
    const iov::metadata md2 = std::move(md);
    CHECK(!s && !w && !c && !g && !b && s2 && w2 && c2 && g2 && b2);
    (void)THROWS(INVALID, s.load_workspace("moved from"));
    (void)THROWS(INVALID, s.counters());
    (void)THROWS(INVALID, iov::batch(s));
    (void)THROWS(INVALID, w.create("x"));
    (void)THROWS(INVALID, w.stat());
    (void)THROWS(INVALID, w.check_controls("consistency=commit"));
    (void)THROWS(INVALID, c.write(0, "x"sv));
    (void)THROWS(INVALID, c.size());
    (void)THROWS(INVALID, c.async_write(0, "x"sv));
    const iov::error e = THROWS(INVALID, g.create("x")); /* not in the root */
    CHECK(contains(e.detail(), "group"));
    (void)THROWS(INVALID, g.list());
    (void)THROWS(INVALID, b.write(c2, 0, "x"sv)); /* not at once */
    (void)THROWS(INVALID, b.close(c2));
    (void)THROWS(INVALID, b.start());
    (void)THROWS(INVALID, b2.write(c, 0, "x"sv));
    (void)THROWS(INVALID, b2.close(c));
    (void)THROWS(INVALID, md.set("k", 2));
    CHECK(md.empty() && md.begin() == md.end() && !md.find("k"));
    CHECK(c2.size() == 0 && b2.size() == 0 && g2.list().begin() == iov::cursor::iterator());
    iov::request none;
    (void)THROWS(INVALID, none.wait());
    (void)THROWS(INVALID, none.test());
    (void)THROWS(INVALID, none.cancel());
    (void)THROWS(INVALID, none.status());
    iov::cursor empty;
    (void)THROWS(INVALID, empty.begin());
    s.close(); /* closing and destroying what is empty is fine */
    w.close();
    c.close();
    g.close();
    b.close();
    none.close();
    empty.close();
    c = w2.create("assigned");
    c.write(0, "good again"sv);
    CHECK(text_of(c) == "good again");
}

static void test_close_reports_and_ends() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("reports");
    iov::collection c = w.create("c");
    ::iov_collection *const raw = c.get();
    c.close();
    CHECK(!c && closed(raw));
    c.close();
    iov::collection d = w.create("d");
    CHECK(::iov_collection_close(nullptr, d.get()) == 0); /* behind its back */
    (void)THROWS(INVALID, d.close());
    CHECK(!d);
    iov::collection given = w.create("given");
    ::iov_collection *const mine = given.release();
    CHECK(!given && !closed(mine));
    iov::collection taken(mine, s.get());
    taken.write(0, "taken over"sv);
    CHECK(text_of(taken) == "taken over");
}

static void test_destructors_meet_errors() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("errors");
    {
        iov::collection c = w.create("c"), x = w.create("exclusive", "concurrency=exclusive,mutability=immutable");
        iov::cursor cur = w.search();
        iov::batch b(s);
        iov::lock held(c);
        iov::workspace v = s.load_workspace("errors");
        x.write(0, "sealed by its close"sv);
        CHECK(::iov_cursor_close(cur.get()) == 0 && ::iov_batch_free(b.get()) == 0);
        CHECK(::iov_collection_close(nullptr, c.get()) == 0 && ::iov_workspace_close(v.get()) == 0);
        CHECK(::iov_collection_close(nullptr, x.get()) == 0);
    } /* every destructor here finds a handle that is none */
    iov::collection c = w.create("after");
    c.write(0, "all is well"sv);
    CHECK(text_of(c) == "all is well");
}

static void test_children_go_on() {
    iov::collection c;
    iov::metadata md;
    {
        iov::session s = iov::open("mem:ownership");
        iov::workspace w = s.create_workspace("children");
        c = w.create("c");
        c.put_metadata(iov::metadata{{"k", "v"}});
        md = c.metadata();
    }
    c.write(0, "its session and workspace are closed"sv);
    CHECK(c.size() == 36 && md.get<std::string>("k") == "v");
    c.close();
}

/* The lock is given back by somebody else, a little later. */
static std::thread gives_back(iov::lock &held) {
    return std::thread([&held] {
        std::this_thread::sleep_for(50ms);
        held.unlock();
    });
}

static void test_o8_buffers_are_left_alone_before_they_go() {
    iov::session s = iov::open("mem:ownership");
    iov::workspace w = s.create_workspace("in flight");
    iov::collection holder = w.create("c"), waiter = w.lookup("c");
    iov::lock held(holder);
    const std::string bytes(1 << 16, 'b');
    ::iov_request *raw = nullptr;
    ::iov_batch *raw_batch = nullptr;
    std::thread other;
    {
        iov::batch b(s);
        b.lock(waiter);
        b.barrier();
        b.write(waiter, 0, bytes);
        b.unlock(waiter);
        iov::request r = b.start();
        raw = r.get();
        raw_batch = b.get();
        CHECK(!r.wait_for(1ms));
        (void)THROWS(BUSY, r.close());
        (void)THROWS(BUSY, b.close());
        (void)THROWS(BUSY, b.reset());
        (void)THROWS(BUSY, b.append(waiter, bytes));
        (void)THROWS(BUSY, r.status());
        (void)THROWS(BUSY, s.close());
        CHECK(s && b && r); /* what could not be closed is still there */
        other = gives_back(held);
    } /* cancelled, and waited for */
    int done = 0;
    CHECK(::iov_test(raw, &done) == -IOV_EINVALID && ::iov_batch_free(raw_batch) == -IOV_EINVALID);
    other.join();

    waiter = w.lookup("c"); /* whatever lock it got is gone */
    held = iov::lock(holder);
    iov::request survivor;
    {
        iov::batch b(s); /* the batch goes first: it sees to its request */
        b.lock(waiter);
        survivor = b.start();
        CHECK(!survivor.test());
        other = gives_back(held);
    }
    other.join();
    (void)THROWS(INVALID, survivor.wait());
    survivor = iov::request(); /* and a stale one goes quietly */

    iov::request r = iov::batch(s).start();
    r = waiter.async_write(0, bytes); /* an assignment ends what was there */
    r.wait();
    CHECK(r.bytes() == bytes.size());
}

MAIN(RUN(test_destructors_close);
     RUN(test_moves);
     RUN(test_moved_from_objects_are_refused);
     RUN(test_close_reports_and_ends);
     RUN(test_destructors_meet_errors);
     RUN(test_children_go_on);
     RUN(test_o8_buffers_are_left_alone_before_they_go);)
