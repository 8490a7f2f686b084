/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces, groups and their names; locks, buffers, and handles for other processes. */
#include "test.hpp"

#include <thread>

static iov::session s;

static void test_o1_properties() {
    iov::metadata md{{"project", "nacelle"}};
    iov::workspace_options o;
    o.controls = "consistency=commit";
    o.pairs = md;
    o.indexes = {"temperature"};
    o.quota_collections = 2;
    o.expires = iov::time_point(4000000000s);
    iov::workspace w = s.create_workspace("properties", o);
    (void)THROWS(EXISTS, s.create_workspace("properties"));
    const ::iov_stat stat = w.stat();
    CHECK(stat.kind == IOV_KIND_WORKSPACE && stat.quota_collections == 2 && stat.quota_bytes == IOV_UNLIMITED);
    CHECK(stat.expires_ns == 4000000000000000000);
    CHECK(w.root().get_metadata<std::string>("project") == "nacelle");
    iov::collection a = w.create("a"), b = w.create("b");
    (void)THROWS(EXHAUSTED, w.create("c"));
    o = {};
    o.quota_collections = 3;
    w.set(o);
    CHECK(w.stat().quota_collections == 3 && w.stat().expires_ns == 4000000000000000000); /* the rest stays */
    (void)w.create("c");
    w.set_name("renamed");
    w.commit();
    w.persist();
    (void)THROWS(NOTFOUND, s.load_workspace("properties"));
    CHECK(iov::uuid(s.load_workspace(iov::uuid(stat.uuid).to_string()).stat().uuid) == iov::uuid(stat.uuid));
    (void)THROWS(NOTEMPTY, s.delete_workspace("renamed"));
    a.close();
    b.close();
    for (const char *name : {"a", "b", "c"}) {
        w.remove(name);
    }
    s.delete_workspace("renamed");
    o.access = "any=read";
    (void)THROWS(REFUSED, s.create_workspace("open to all", o));
}

static void test_o3_groups_and_names() {
    iov::workspace w = s.create_workspace("groups");
    iov::group g = w.create_group("g"), inner = g.create_group("inner");
    iov::collection c = inner.create("c"), unnamed = w.create(nullptr);
    (void)THROWS(EXISTS, g.create("inner"));
    (void)THROWS(NOTFOUND, w.lookup("c"));
    CHECK(g.lookup_group("inner").lookup("c") && g.lookup_group(nullptr).lookup_group("inner"));
    inner.rename("c", "d");
    inner.rename("d", w, "e");
    CHECK(w.lookup("e"));
    (void)THROWS(NOTFOUND, inner.lookup("d"));
    (void)THROWS(EXISTS, w.rename("e", g, "inner", IOV_RENAME_NOREPLACE));
    (void)THROWS(INVALID, w.rename("g", inner, "g")); /* a cycle */
    c.link(inner, "again");
    unnamed.link(g, "named");
    CHECK(c.stat().links == 2 && g.stat().entries == 2 && g.lookup("named"));
    (void)THROWS(NOTEMPTY, w.remove("g"));
    inner.remove("again");
    g.remove("inner");
    CHECK(c.stat().links == 1);
    c.write(0, "goes on"sv);
    w.remove("e"); /* O10 */
    CHECK(text_of(c) == "goes on");
    (void)THROWS(INVALID, w.lookup(nullptr));
    ::iov_collection *const raw = g.release();
    iov::group taken(raw, w);
    CHECK(taken.lookup("named") && taken.controls().is(iov::concurrency::shared));
}

static void test_o2_properties_of_collections() {
    iov::workspace w = s.create_workspace("collections");
    iov::collection c = w.create("c", "concurrency=exclusive");
    c.set_controls("consistency=session,concurrency=exclusive");
    c.close();
    c = w.lookup("c");
    CHECK(c.controls().is(iov::consistency::session));
    const ::iov_layout layout = c.layout();
    CHECK(layout.revision >= 1);
    ::iov_layout two = IOV_LAYOUT_INIT;
    two.targets = 2;
    (void)THROWS(REFUSED, c.set_layout(two));
    ::iov_attr attr = IOV_ATTR_INIT;
    attr.mask = IOV_ATTR_MTIME;
    attr.mtime_ns = 5;
    c.set_attr(attr);
    CHECK(c.stat().mtime_ns == 5 && c.session_handle() == s.get());
}

static void test_o11_locks() {
    iov::workspace w = s.create_workspace("locks");
    iov::collection a = w.create("c"), b = w.lookup("c");
    {
        iov::lock held(a, {iov::lock_mode::exclusive, 0, 10, 0, 30s});
        CHECK(held && !iov::lock::try_lock(b, {iov::lock_mode::shared, 5, 10, 0, {}}));
        const std::optional<::iov_lock_attr> found = iov::lock::query(b, {iov::lock_mode::shared, 5, 10, 0, {}});
        CHECK(found && found->range.offset == 0 && found->range.len == 10);
        CHECK(iov::lock::try_lock(b, {iov::lock_mode::exclusive, 10, 10, 0, {}}));
        iov::lock moved = std::move(held);
        CHECK(moved && !held && !iov::lock::try_lock(b));
        held = iov::lock(a, {iov::lock_mode::shared, 100, 1, 0, {}});
        held = std::move(moved); /* gives back what it held */
        CHECK(iov::lock::try_lock(b, {iov::lock_mode::exclusive, 100, 1, 0, {}}) && !iov::lock::try_lock(b));
    }
    CHECK(!iov::lock::query(b));
    iov::lock shared = iov::lock::try_lock(a, {iov::lock_mode::shared, 0, 0, 0, {}});
    CHECK(shared && iov::lock::try_lock(b, {iov::lock_mode::shared, 0, 0, 0, {}}));
    shared.unlock();
    shared.unlock();
    CHECK(!shared && iov::lock::try_lock(b));
    iov::lock late(a);
    a.close(); /* its locks end with it */
    CHECK(iov::lock::try_lock(b));
    (void)THROWS(INVALID, late.unlock());
    (void)THROWS(INVALID, iov::lock(a));
    iov::collection d = w.lookup("c");
    iov::lock held(d);
    std::thread other([&] { iov::lock waits(b); b.append("after it"sv); });
    CHECK(d.size() == 0); /* reads do not look at it */
    held.unlock();
    other.join();
    CHECK(d.size() == 8);
}

static void test_buffers() {
    iov::workspace w = s.create_workspace("buffers");
    iov::collection c = w.create("c");
    iov::buffer memory(s, 100000);
    CHECK(memory.size() == 100000 && reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 == 0);
    std::memset(memory.data(), 'b', memory.size());
    c.write(0, memory);
    iov::buffer moved = std::move(memory);
    CHECK(memory.data() == nullptr && c.read(0, moved) == 100000);
    moved = iov::buffer(s, 5);
    CHECK(moved.size() == 5);
    moved.close();
    moved.close();
    ::iov_buffer_attr cuda = IOV_BUFFER_ATTR_INIT;
    cuda.memory = IOV_MEMORY_CUDA;
    (void)THROWS(UNSUPPORTED, iov::buffer(s, 5, cuda));
    std::vector<char> mine(8192);
    {
        iov::registration r(s, mine);
        (void)THROWS(INVALID, iov::registration(s, mine));
        iov::registration other = std::move(r);
        r.close();
        c.write(0, mine);
    }
    iov::registration again(s, mine);
    again.close();
    again.close();
    (void)THROWS(UNSUPPORTED, iov::view(c, 0, 5)); /* this store shows nothing in place */
    iov::view none, same = std::move(none);
    CHECK(same.data() == nullptr && same.size() == 0);
}

static void test_x1_handles_travel() {
    iov::session other = iov::open("mem:workspaces");
    iov::workspace w = s.create_workspace("handles");
    iov::collection c = w.create("c"), held = w.create("held", "concurrency=exclusive");
    c.write(0, "exported"sv);
    const std::string of_c = iov::export_handle(c), of_w = iov::export_handle(w), of_s = iov::export_handle(s);
    CHECK(text_of(iov::import_collection(other, of_c)) == "exported");
    iov::workspace v = iov::import_workspace(other, of_w);
    CHECK(v.lookup("c") && v.session_handle() == other.get());
    iov::group g = w.create_group("g");
    (void)g.create("inner");
    const std::string of_g = iov::export_handle(g);
    CHECK(iov::import_group(other, v, of_g).lookup("inner"));
    (void)THROWS(INVALID, iov::import_group(other, v, of_c));
    (void)THROWS(BUSY, v.lookup("held"));
    iov::join_session(other, of_s);
    CHECK(v.lookup("held"));
    (void)THROWS(INVALID, iov::import_collection(other, of_w));
    (void)THROWS(INVALID, iov::import_workspace(other, of_c));
    (void)THROWS(INVALID, iov::import_workspace(other, of_s));
    (void)THROWS(INVALID, iov::join_session(other, of_c));
    (void)THROWS(INVALID, iov::import_collection(other, "nonsense"sv));
}

static void test_sessions() {
    iov::session_options o;
    o.flags = IOV_SESSION_READONLY;
    o.program = "a C++ test";
    iov::session readonly = iov::open("mem:workspaces", o);
    (void)THROWS(DENIED, readonly.create_workspace("x"));
    o.token = "secret";
    CHECK(!contains(THROWS(UNSUPPORTED, iov::open("mem:workspaces", o)).what(), "secret"));
    CHECK(::setenv("IOVERBS_URL", "mem:workspaces", 1) == 0);
    CHECK(iov::open().load_workspace("handles"));
}

MAIN(s = iov::open("mem:workspaces");
     RUN(test_o1_properties);
     RUN(test_o3_groups_and_names);
     RUN(test_o2_properties_of_collections);
     RUN(test_o11_locks);
     RUN(test_buffers);
     RUN(test_x1_handles_travel);
     RUN(test_sessions);)
