/* SPDX-License-Identifier: Apache-2.0 */
/* Search (O5): range-for, options, and where errors come out. */
#include "test.hpp"

#include <algorithm>
#include <set>

static constexpr int runs = 300; /* more than a page of a cursor */

static iov::session s;
static iov::workspace w;

static void fill() {
    iov::workspace_options options;
    options.indexes = {"temperature", "experiment"};
    w = s.create_workspace("ws", options);
    iov::group g = w.create_group("deep");
    for (int i = 0; i < runs; i++) {
        const iov::metadata md{{"temperature", i}, {"experiment", i % 3 == 0 ? "nacelle" : "wake"}};
        const std::string name = "run_" + std::to_string(1000 + i);
        (void)(i < 10 ? g.create(name, {}, md) : w.create(name, {}, md));
    }
}

static void test_o5_range_for() {
    std::set<std::string> names;
    for (const iov::entry &found : w.search("temperature >= 0")) {
        CHECK(found.kind() == iov::kind::collection && found.uuid() && found.metadata().empty());
        CHECK(names.emplace(found.name()).second); /* each exactly once */
    }
    CHECK(names.size() == runs);
    int none = 0;
    for (const iov::entry &found : w.search("temperature > 1000")) {
        none += found.name().empty() ? 1 : 2;
    }
    CHECK(none == 0);
    iov::cursor all = w.search();
    CHECK(std::count_if(all.begin(), all.end(), [](const iov::entry &e) { return e.kind() == iov::kind::group; }) == 1);
    CHECK(all.begin() == all.end());
    const std::string predicate = "temperature = 42";
    for (const iov::entry &found : w.search(predicate)) {
        iov::collection c = w.lookup(found.name()); /* the loop may use the store */
        CHECK(c.get_metadata<int>("temperature") == 42);
        CHECK(w.lookup(found.uuid().to_string()).get_metadata<std::string>("iov.name") == found.name());
    }
}

static void test_options() {
    iov::search_options o;
    o.keys = {"temperature", "iov.name"};
    o.order = "temperature desc";
    o.limit = 50;
    o.params = {100, "nacelle"};
    int last = 1000, n = 0;
    for (const iov::entry &found : w.search("temperature > ? and experiment = ?", o)) {
        const int temperature = found.get<int>("temperature");
        CHECK(temperature < last && temperature > 100 && temperature % 3 == 0);
        CHECK(found.get<std::string>("iov.name") == found.name() && found.metadata().size() == 2);
        (void)THROWS(NOTFOUND, found.get<std::string>("experiment"));
        (void)THROWS(INVALID, found.get<double>("temperature"));
        last = temperature;
        n++;
    }
    CHECK(n == 50 && last == 297 - 49 * 3);
    o.keys = {"*"};
    for (const iov::entry &found : w.search("temperature > ? and experiment = ?", o)) {
        CHECK(found.metadata().size() == 2 && found.get<std::string_view>("experiment") == "nacelle");
    }
    const std::string held = "nacelle and more";
    o.params = {290, std::string_view(held).substr(0, 7)};
    CHECK(w.count("temperature > ? and experiment = ?", o) == 3);
}

static void test_count_group_and_list() {
    CHECK(w.count() == runs + 1 && w.count("temperature < 100") == 100);
    iov::group g = w.lookup_group("deep");
    CHECK(g.count() == 10 && w.root().count("exists(temperature)") == runs - 10);
    iov::search_options deep;
    deep.deep = true;
    CHECK(w.root().count("exists(temperature)", deep) == runs);
    std::size_t in_root = 0, in_group = 0;
    for (const iov::entry &found : w.list()) {
        CHECK(!found.group());
        in_root++;
    }
    for (const iov::entry &found : g.list()) {
        CHECK(found.group() == iov::uuid(g.stat().uuid));
        in_group++;
    }
    CHECK(in_root == runs - 10 + 1 && in_group == 10);
    CHECK(s.search_workspaces("iov.name = \"ws\"").begin()->name() == "ws");
    CHECK(s.search_workspaces().begin()->kind() == iov::kind::workspace);
}

static void test_errors_come_from_the_call() {
    const iov::error e = THROWS(INVALID, w.search("temperature >> 5"));
    CHECK(contains(e.detail(), "14"));
    (void)THROWS(INVALID, w.search("temperature > ?")); /* no value for it */
    iov::cursor cur = w.search();
    cur.close();
    (void)THROWS(INVALID, cur.begin());
    (void)THROWS(INVALID, cur.next(1s));
    iov::cursor behind = w.search();
    iov::cursor::iterator at = behind.begin();
    CHECK(::iov_cursor_close(behind.get()) == 0);
    (void)THROWS(INVALID, std::for_each(at, behind.end(), [](const iov::entry &) {})); /* from ++, at the next page */
}

static void test_a_cursor_moves_with_its_place() {
    iov::search_options o;
    o.order = "temperature";
    o.keys = {"temperature"};
    iov::cursor a = w.search("exists(temperature)", o);
    int expected = 0;
    for (const iov::entry &found : a) {
        CHECK(found.get<int>("temperature") == expected);
        if (++expected == 40) { /* in the second page */
            break;
        }
    }
    iov::cursor b = std::move(a);
    (void)THROWS(INVALID, a.begin());
    while (const iov::entry *found = b.next(30s)) {
        CHECK(found->get<int>("temperature") == expected++);
        if (expected == 100) {
            a = std::move(b);
            break;
        }
    }
    for (const iov::entry &found : a) {
        CHECK(found.get<int>("temperature") == expected++);
    }
    CHECK(expected == runs && a.next(0s) == nullptr);
}

static void test_search_in_a_batch() {
    iov::batch b(s);
    iov::collection c = b.create(w, "in batch", {}, iov::metadata{{"unique", 1}});
    iov::group g = w.lookup_group("deep"); /* open until the batch has completed */
    iov::cursor found = b.search(w, "unique = 1"), listed = b.list(g);
    (void)THROWS(BUSY, found.begin());
    b.run();
    CHECK(found.begin()->name() == "in batch" && std::distance(listed.begin(), listed.end()) == 10);
}

MAIN(s = iov::open("mem:search"); fill();
     RUN(test_o5_range_for);
     RUN(test_options);
     RUN(test_count_group_and_list);
     RUN(test_errors_come_from_the_call);
     RUN(test_a_cursor_moves_with_its_place);
     RUN(test_search_in_a_batch);)
