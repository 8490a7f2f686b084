/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: asynchronous calls, waiting, deadlines, cancelling, polling. */
#include "test.hpp"

#include <chrono>

static iov::session s;
static iov::workspace w;

using clock_type = std::chrono::steady_clock;

static void test_asynchronous_calls() {
    iov::collection c = w.create("async"), log = w.create("async log", "mutability=append"), d = w.create("async copy");
    std::vector<double> out(1000, 1.5), in(2000);
    iov::request r = c.async_write(0, out);
    CHECK(r);
    r.wait();
    CHECK(r.test() && r.wait_for(0s) && r.status().ok() && r.bytes() == 8000); /* as often as is asked */
    r = c.async_read(0, in);
    r.wait();
    CHECK(r.bytes() == 8000 && in[999] == 1.5 && in[1000] == 0);
    std::uint64_t first = 77, second = 77;
    log.async_append("first"sv, &first).wait();
    log.async_append("second"sv, &second).wait();
    CHECK(first == 0 && second == 5);
    const ::iov_chunk chunks[] = {iov::chunk(0, {in.data(), 8}), iov::chunk(16, {in.data() + 1, 8})};
    in[0] = 2.5;
    c.async_writev(chunks, 2).wait();
    in[0] = in[1] = 0;
    r = c.async_readv(chunks, 2);
    r.wait();
    CHECK(r.bytes() == 16 && in[0] == 2.5 && in[1] == 1.5);
    c.async_commit().wait();
    c.async_persist().wait();
    c.async_copy_to(0, d, 0, 800).wait();
    CHECK(d.size() == 800);
    iov::collection pub = w.create("async closed", "atomicity=publication");
    pub.write(0, "published"sv);
    pub.async_close().wait();
    (void)THROWS(INVALID, pub.size());
    CHECK(text_of(w.lookup("async closed")) == "published");
}

static void test_its_error_is_the_operations() {
    iov::collection c = w.create("sealed", "mutability=immutable");
    c.write(0, "x"sv);
    c.seal();
    iov::request r = c.async_write(0, "y"sv);
    (void)THROWS(IMMUTABLE, r.wait());
    (void)THROWS(IMMUTABLE, r.test());
    (void)THROWS(IMMUTABLE, r.wait_for(1s));
    CHECK(r.status().code() == IOV_EIMMUTABLE && r.bytes() == 0);
    (void)THROWS(INVALID, c.async_read(UINT64_MAX, iov::mutable_buffer())); /* nothing was started */
}

static void test_o8_deadlines() {
    iov::collection holder = w.create("locked"), waiter = w.lookup("locked");
    iov::lock held(holder);
    iov::batch b(s, 1000h);
    b.lock(waiter);
    iov::request r = b.start();
    CHECK(!r.test() && !r.wait_for(1ms) && !r.wait_for(0ns) && !r.wait_for(-1h)); /* not "for ever" */
    CHECK(!r.wait_until(clock_type::now() - 1s) && !r.wait_until(std::chrono::system_clock::now()));
    iov::batch soon(s, 100ms); /* its own deadline, long before the session's */
    soon.lock(waiter);
    iov::request ends = soon.start();
    (void)THROWS(TIMEOUT, ends.wait());
    CHECK(ends.status().state() == iov::op_state::failed && ends.status().code() == IOV_ETIMEOUT);

    iov::batch past(s, -1s); /* a deadline that has passed is not "the session's" */
    past.lock(waiter);
    (void)THROWS(TIMEOUT, past.run());

    iov::session_options o;
    o.deadline = 2s;
    iov::session hasty = iov::open("mem:requests", o);
    iov::collection c = hasty.load_workspace("ws").lookup("locked");
    (void)THROWS(TIMEOUT, iov::lock(c));

    CHECK(!r.wait_for(std::chrono::duration<double>(0.001)));
    held.unlock();
    CHECK(r.wait_for(std::chrono::hours::max())); /* as long as can be said */
    waiter.close();
}

static void test_cancel() {
    iov::collection holder = w.create("cancel"), waiter = w.lookup("cancel");
    iov::lock held(holder);
    iov::batch b(s);
    b.lock(waiter);
    b.append(holder, "behind"sv);
    iov::request r = b.start();
    CHECK(!r.wait_for(1ms));
    r.cancel();
    held.unlock();
    try {
        r.wait();
        CHECK(b.status(0).ok() && b.status(1).ok()); /* too late */
    } catch (const iov::error &e) {
        CHECK(e.code() == IOV_EPARTIAL && contains(e.detail(), b.status(0).ok() ? "operation 1 (append)" : "(lock)"));
    }
}

static void test_a_batch_outlives_nothing() {
    iov::collection c = w.create("kept");
    iov::request r;
    {
        iov::batch b(s);
        b.write(c, 0, "kept by the request"sv);
        b.remove(w, "nobody");
        r = std::move(b).start();
        CHECK(!b);
    }
    iov::request moved = std::move(r);
    (void)THROWS(PARTIAL, moved.wait());
    CHECK(moved.status(0).ok() && moved.status(1).code() == IOV_ENOTFOUND);
    CHECK(contains(moved.status(1).detail(), "nobody"));
    (void)THROWS(INVALID, moved.status(2));
    moved.close();
    moved.close();
    (void)THROWS(INVALID, moved.wait());
    CHECK(text_of(c) == "kept by the request");
}

static void test_poll() {
    iov::session own = iov::open("mem:requests");
    iov::workspace v = own.load_workspace("ws");
    iov::collection c = v.create("poll");
    ::iov_completion done[4];
    CHECK(own.event_fd() >= 0 && own.poll(done, 4, 0s) == 0);
    iov::batch_options o;
    int mine = 0;
    o.user_data = &mine;
    o.progress = IOV_PROGRESS_BACKGROUND;
    iov::request r = c.async_append("record"sv, nullptr, o);
    CHECK(own.poll(done, 4, 60s) == 1);
    CHECK(done[0].request == r.get() && done[0].user_data == &mine && done[0].code == 0);
    r.wait();
    (void)THROWS(INVALID, own.poll(nullptr, 4, 0s));
    CHECK(own.counters().operations > 0 && own.counters().bytes_written == 6);
}

MAIN(s = iov::open("mem:requests"); w = s.create_workspace("ws");
     RUN(test_asynchronous_calls);
     RUN(test_its_error_is_the_operations);
     RUN(test_o8_deadlines);
     RUN(test_cancel);
     RUN(test_a_batch_outlives_nothing);
     RUN(test_poll);)
