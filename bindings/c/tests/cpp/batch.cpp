/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: error policies, statuses, pending handles, every operation that can be appended. */
#include "test.hpp"

static iov::session s;
static iov::workspace w;

static void test_b1_every_operation_has_its_status() {
    iov::collection c = w.create("b1");
    c.write(0, "abc"sv);
    iov::batch b(s, iov::on_error::proceed);
    char into[8] = "before";
    std::size_t got = 77;
    const std::size_t read = b.read(c, 0, into, &got), removed = b.remove(w, "no such name");
    const std::size_t appended = b.append(c, "def"sv);
    CHECK(b.size() == 3 && read == 0 && removed == 1 && appended == 2);
    CHECK(got == 77 && into[0] == 'b' && c.size() == 3); /* appending does nothing */
    const iov::error e = THROWS(PARTIAL, b.run());
    CHECK(contains(e.detail(), "1 of 3"));
    CHECK(got == 3 && into[0] == 'a' && c.size() == 6);
    CHECK(b.status(read).ok() && b.status(read).bytes() == 3 && b.status(read).code() == 0);
    b.status(read).check();
    const iov::op_status failed = b.status(removed);
    CHECK(!failed.ok() && failed.state() == iov::op_state::failed && failed.code() == IOV_ENOTFOUND);
    CHECK(failed.outcome() == iov::outcome::not_applied && contains(failed.detail(), "no such name"));
    CHECK(contains(THROWS(NOTFOUND, failed.check()).detail(), "no such name"));
    (void)THROWS(INVALID, b.status(3));
}

static void test_b2_stop() {
    iov::collection c = w.create("b2");
    iov::batch b(s, iov::on_error::stop);
    b.append(c, "1"sv);
    b.barrier();
    b.remove(w, "nothing");
    b.barrier();
    const std::size_t never = b.append(c, "2"sv);
    CHECK(never == 2); /* barriers do not count */
    (void)THROWS(PARTIAL, b.run());
    CHECK(b.status(never).state() == iov::op_state::skipped && b.status(never).clause() == "B2" && c.size() == 1);
}

static void test_b3_rollback() {
    iov::collection a = w.create("b3"), log = w.create("b3 log", "mutability=append");
    a.write(0, "old"sv);
    iov::batch b(s, iov::on_error::rollback);
    const auto all_of_it = [&](std::uint64_t *offset) {
        b.write(a, 0, "new"sv);
        b.append(log, "record"sv, offset);
        b.put_metadata(a, {{"state", "new"}, {"step", 1}});
        iov::collection made = b.create(w, "b3 made");
        b.write(made, 0, "born"sv);
        return made;
    };
    std::uint64_t offset = 77;
    {
        const iov::collection made = all_of_it(&offset);
        b.remove(w, "no such name");
        (void)THROWS(PARTIAL, b.run());
        for (std::size_t i = 0; i < 5; i++) {
            CHECK(b.status(i).state() == iov::op_state::undone && b.status(i).clause() == "B3");
        }
        CHECK(b.status(5).code() == IOV_ENOTFOUND && offset == 77);
        CHECK(text_of(a) == "old" && log.size() == 0 && a.metadata().empty());
        (void)THROWS(NOTFOUND, w.lookup("b3 made"));
        (void)THROWS(CANCELLED, made.size()); /* each use of it tells why */
    }
    b.reset();
    const iov::collection made = all_of_it(&offset);
    b.run();
    CHECK(text_of(a) == "new" && offset == 0 && text_of(made) == "born" && text_of(log) == "record");
    CHECK(a.get_metadata<std::string>("state") == "new" && a.get_metadata<int>("step") == 1);
}

static void test_b3_a_retry_applies_once() {
    iov::collection c = w.create("retry");
    iov::batch_options o = iov::on_error::rollback;
    o.id = iov::uuid::make();
    for (int i = 0; i < 2; i++) {
        iov::batch b(s, o);
        b.append(c, "once"sv);
        b.run();
    }
    CHECK(c.size() == 4);
    iov::batch_options eventual = iov::on_error::rollback;
    iov::batch b(s, eventual);
    iov::collection weak = w.create("weak", "consistency=eventual(1ms)");
    b.append(weak, "x"sv);
    CHECK(THROWS(REFUSED, b.run()).clause() == "B3"); /* of a single operation the error itself */
    eventual.controls = "persistence=durable@batch"; /* which mem: cannot promise */
    iov::batch durable(s, eventual);
    durable.append(c, "x"sv);
    CHECK(THROWS(REFUSED, durable.run()).clause() == "P3");
}

static void test_o9_pending_handles() {
    iov::batch b(s);
    iov::collection c = b.create(w, "o9");
    CHECK(c);
    (void)THROWS(BUSY, c.write(0, "x"sv));
    b.write(c, 0, "one"sv);
    b.write(c, 0, "two"sv);
    char seen[8];
    const std::size_t read = b.read(c, 0, seen); /* T20: sees what the batch wrote */
    iov::collection again = b.lookup(w, "o9");
    b.write(again, 3, "!"sv);
    iov::group g = b.create_group(w, "o9 group"), g2 = b.lookup_group(w, "o9 group");
    iov::collection inner = b.create(g, "inner");
    iov::collection missing = b.lookup(w, "missing");
    const std::size_t lookup = b.size() - 1, use = b.write(missing, 0, "x"sv);
    b.close(again);
    b.close(inner);
    b.close(g2);
    (void)THROWS(PARTIAL, b.run());
    CHECK(b.status(read).bytes() == 3 && std::string_view(seen, 3) == "two" && text_of(c) == "two!");
    CHECK(b.status(lookup).code() == IOV_ENOTFOUND && b.status(use).code() == IOV_ENOTFOUND);
    (void)THROWS(NOTFOUND, missing.size());
    (void)THROWS(INVALID, again.size()); /* closed by its batch */
    CHECK(g.list().begin()->name() == "inner");
}

static void test_never_started() {
    iov::collection kept = w.create("kept");
    {
        iov::batch b(s);
        iov::collection c = b.create(w, "never");
        b.close(kept);
    }
    kept.write(0, "still open"sv);
    (void)THROWS(NOTFOUND, w.lookup("never"));
    iov::batch empty(s);
    empty.run();
    empty.close();
    (void)THROWS(INVALID, empty.run());
    CHECK(empty.size() == 0);
}

static void test_explain() {
    iov::collection c = w.create("explained", "atomicity=publication");
    iov::batch b(s);
    for (int i = 0; i < 50; i++) { /* longer than the first guess of the buffer */
        b.write(c, 0, "x"sv);
    }
    b.commit(c);
    const std::string plan = b.explain();
    CHECK(plan.size() > 255 && plan.front() == '{' && plan.back() == '}' && contains(plan, "\"write\""));
    CHECK(plan.find('\0') == plan.npos && c.size() == 0);
}

static void test_all_other_operations() {
    iov::session own = iov::open("mem:batch others");
    iov::workspace v = own.create_workspace("others");
    iov::collection c = v.create("c", {}, iov::metadata{{"k", 1}, {"text", "value"}}), d = v.create("d");
    iov::group g = v.create_group("g");
    c.write(0, "0123456789"sv);
    iov::batch b(own);
    ::iov_stat stat, of_workspace;
    ::iov_value value;
    ::iov_metadata *pairs = nullptr;
    std::uint64_t copied = 0;
    std::size_t n = 0, moved = 0;
    ::iov_extent extents[4];
    char x[3], y[2];
    const ::iov_chunk in[] = {iov::chunk(0, x), iov::chunk(8, y)};
    const ::iov_chunk out[] = {iov::write_chunk(20, "ab"sv), iov::write_chunk(30, "cd"sv)};
    ::iov_attr attr = IOV_ATTR_INIT;
    attr.mask = IOV_ATTR_MTIME;
    attr.mtime_ns = 1000000007;
    iov::workspace_options options;
    options.quota_collections = 1000;
    b.stat(v, &of_workspace);
    b.get_metadata(c, "text", &value);
    b.remove_metadata(c, "k");
    b.list_metadata(c, &pairs);
    b.readv(c, in, 2);
    b.copy(c, 2, d, 0, 4, &copied);
    b.writev(c, out, 2, &moved);
    b.truncate(c, 31);
    b.punch(c, 0, 4);
    b.allocate(d, 0, 100);
    b.extents(c, 0, 100, extents, 4, &n);
    b.lock(c);
    b.unlock(c);
    b.link(c, g, "c too");
    b.rename(v, "d", g, "d");
    b.set(v, options);
    b.set_name(v, "other name");
    b.commit(c);
    b.persist(c);
    b.commit(v);
    b.persist(v);
    b.set_attr(d, attr);
    b.seal(d);
    b.stat(c, &stat);
    b.run();
    CHECK(stat.bytes == 31 && stat.links == 2 && of_workspace.kind == IOV_KIND_WORKSPACE && copied == 4 && moved == 4);
    CHECK(iov::value(value).as<std::string_view>() == "value" && n >= 1);
    CHECK(iov::metadata(pairs).size() == 1 && text_of(c, 20, 2) == "ab" && text_of(c, 0, 4) == std::string(4, '\0'));
    CHECK(std::string_view(x, 3) == "012" && std::string_view(y, 2) == "89");
    CHECK(text_of(g.lookup("d"), 0, 4) == "2345" && own.load_workspace("other name").stat().quota_collections == 1000);
    CHECK(d.stat().mtime_ns == 1000000007 && d.stat().state == IOV_STATE_SEALED);
    iov::batch set(own);
    iov::collection x1 = v.create("x1", "concurrency=exclusive");
    const iov::controls session = "consistency=session,concurrency=exclusive";
    set.set(x1, &session, nullptr);
    set.run();
    x1.close();
    x1 = v.lookup("x1");
    CHECK(x1.controls().is(iov::consistency::session));
}

MAIN(s = iov::open("mem:batch"); w = s.create_workspace("ws");
     RUN(test_b1_every_operation_has_its_status);
     RUN(test_b2_stop);
     RUN(test_b3_rollback);
     RUN(test_b3_a_retry_applies_once);
     RUN(test_o9_pending_handles);
     RUN(test_never_started);
     RUN(test_explain);
     RUN(test_all_other_operations);)
