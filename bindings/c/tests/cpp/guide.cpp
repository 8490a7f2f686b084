/* SPDX-License-Identifier: Apache-2.0 */
/* What docs/guide/c.md shows in C++ and the example does not need: guide.sh sees to it that the page says the same. */
#include "test.hpp"

static iov::session s;
static iov::workspace w;

static void test_m1_publication() {
    const std::vector<double> field(1000, 1.5);
    iov::controls controls;
    controls.set(iov::atomicity::publication).set(iov::persistence::durable);
    bool refused = false;
    try {
        iov::collection c = w.create("checkpoint", controls);
        c.write(0, field);
        c.commit(); // now others see it, all of it
    } catch (const iov::error &e) {
        if (e.code() != IOV_EREFUSED) {
            throw;
        }
        std::fprintf(stderr, "clause %s: %s\n", std::string(e.clause()).c_str(), e.what());
        refused = true;
    }
    CHECK(refused); /* memory is not durable */
}

static void test_b3_rollback() {
    iov::collection a = w.create("a"), log = w.create("log", "mutability=append");
    const std::vector<double> state(8, 1.5);
    {
        iov::batch b(s, iov::on_error::rollback);
        b.write(a, 0, state);
        b.put_metadata(a, {{"step", 7}});
        b.append(log, "step 7 is done\n"sv);
        b.run(); // all of it, or an exception and none of it
    }
    CHECK(a.size() == 64 && log.size() == 15 && a.get_metadata<int>("step") == 7);
}

static void test_asynchronous() {
    iov::collection c = w.create("asynchronous");
    const std::vector<double> field(1000, 1.5);
    int steps = 0;
    const auto compute = [&] { steps++; };
    iov::request r = c.async_write(0, field, 30s); // a deadline
    while (!r.test()) {
        compute();
    }
    CHECK(r.bytes() == 8000);
}

MAIN(s = iov::open("mem:guide"); w = s.create_workspace("ws");
     RUN(test_m1_publication);
     RUN(test_b3_rollback);
     RUN(test_asynchronous);)
