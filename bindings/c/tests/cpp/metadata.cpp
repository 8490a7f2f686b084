/* SPDX-License-Identifier: Apache-2.0 */
/* Typed metadata (O4), in memory and of collections; controls and UUIDs. */
#include "test.hpp"

static_assert(!std::is_constructible_v<iov::value, std::nullptr_t>);
static_assert(std::is_convertible_v<const char *, iov::value> && std::is_convertible_v<unsigned char, iov::value>);

static const iov::time_point begun{1700000000123456789ns};

static iov::metadata sample() {
    iov::metadata md{{"experiment", "nacelle \xc3\xa4"}, {"iteration", -7}, {"temperature", 310.25}, {"begun", begun}};
    const unsigned char mask[] = {0, 1, 2};
    md.set("converged", true).set("mask", iov::value::of_bytes(mask)).set("empty", ""sv);
    return md;
}

static void check_sample(const iov::metadata_view &md) {
    CHECK(md.size() == 7);
    CHECK(md.get<std::string>("experiment") == "nacelle \xc3\xa4" && md.get<std::string_view>("empty").empty());
    CHECK(md.get<int>("iteration") == -7 && md.get<double>("temperature") == 310.25 && md.get<bool>("converged"));
    CHECK(md.get<iov::time_point>("begun") == begun);
    const auto mask = md.get<iov::const_buffer>("mask");
    CHECK(mask.size() == 3 && std::memcmp(mask.data(), "\0\1\2", 3) == 0);
}

static void test_o4_types() {
    const iov::metadata md = sample();
    check_sample(md);
    CHECK(md.find("temperature")->type() == iov::value_type::real && !md.find("nothing"));
    (void)THROWS(NOTFOUND, md.get<int>("nothing"));
    const iov::error e = THROWS(INVALID, md.get<double>("iteration")); /* no type is made of another */
    CHECK(contains(e.detail(), "an integer, not a float"));
    (void)THROWS(INVALID, md.get<std::int64_t>("temperature"));
    (void)THROWS(INVALID, md.get<bool>("iteration"));
    (void)THROWS(INVALID, md.get<std::string>("mask"));
    (void)THROWS(INVALID, iov::value().as<int>());
    (void)THROWS(INVALID, md.get<unsigned>("iteration")); /* nor cut */
    CHECK(iov::value(255).as<std::uint8_t>() == 255 && iov::value(INT64_MIN).as<std::int64_t>() == INT64_MIN);
    (void)THROWS(INVALID, iov::value(256).as<std::uint8_t>());
    (void)THROWS(INVALID, iov::value(-1).as<std::uint64_t>());
    (void)THROWS(INVALID, iov::value(UINT64_MAX));
    CHECK(iov::value(std::uint64_t{INT64_MAX}).as<std::uint64_t>() == INT64_MAX && iov::value('a').as<char>() == 'a');
    CHECK(iov::value(std::chrono::system_clock::time_point{1s}).as<iov::time_point>() == iov::time_point{1s});
}

static void test_sets() {
    iov::metadata md = sample();
    std::string keys;
    for (const auto &[key, value] : md) { /* in the order of keys */
        keys += std::string(key) + (value.type() == iov::value_type::integer ? "# " : " ");
    }
    CHECK(keys == "begun converged empty experiment iteration# mask temperature ");
    md.set("experiment", 1);
    CHECK(md.size() == 7 && md.get<int>("experiment") == 1);
    (void)THROWS(INVALID, md.set("iov.size", 1));
    (void)THROWS(INVALID, md.set("", 1));
    (void)THROWS(INVALID, md.set("k", iov::value()));
    (void)THROWS(INVALID, md.set("k", "not UTF-8: \xff"));
    (void)THROWS(INVALID, md.set("k", "a\0b"sv));
    const std::string big((1 << 20) + 1, 'x');
    (void)THROWS(TOOBIG, md.set("k", iov::value::of_bytes(big)));
    (void)THROWS(INVALID, iov::metadata{{"iov.name", "x"}});
    const std::string text = "only this much";
    md.set("part", std::string_view(text).substr(5, 4)); /* no NUL behind it */
    CHECK(md.get<std::string>("part") == "this" && md.size() == 8);
    md = iov::metadata();
    CHECK(md.empty() && md.begin() == md.end() && iov::metadata_view().begin() == iov::metadata_view().end());
}

static void test_of_collections_and_groups() {
    iov::session s = iov::open("mem:metadata");
    iov::workspace w = s.create_workspace("ws");
    iov::collection c = w.create("c", {}, sample());
    check_sample(c.metadata());
    CHECK(c.get_metadata<std::string>("experiment") == "nacelle \xc3\xa4" && c.get_metadata<int>("iteration") == -7);
    CHECK(c.get_metadata<std::string>("iov.name") == "c");
    (void)THROWS(NOTFOUND, c.get_metadata<int>("nothing"));
    (void)THROWS(INVALID, c.get_metadata<int>("experiment"));
    c.put_metadata(iov::metadata{{"experiment", "wake"}, {"new", 1}});
    c.remove_metadata("mask");
    (void)THROWS(NOTFOUND, c.remove_metadata("mask"));
    const iov::metadata now = c.metadata();
    CHECK(now.size() == 7 && now.get<std::string>("experiment") == "wake" && now.get<int>("new") == 1);
    iov::group g = w.create_group("g", {}, now); /* what was listed can be put again */
    CHECK(g.metadata().size() == 7);
    w.root().put_metadata(iov::metadata{{"of", "the workspace"}});
    CHECK(w.root().get_metadata<std::string>("of") == "the workspace");
}

static void test_controls() {
    iov::controls c = "consistency=session,persistence=volatile@close";
    CHECK(c.is(iov::consistency::session) && c.is(iov::persistence::in_memory));
    CHECK(c.is(iov::persistence_point::close) && c.is(iov::mutability::unset));
    const iov::controls same(c.to_string());
    CHECK(same.to_string() == c.to_string());
    c.set(iov::mutability::append).set(iov::consistency::commit).profile("log");
    CHECK(c.is(iov::consistency::commit) && c.is(iov::mutability::append));
    CHECK(iov::controls().to_string().empty());
    iov::controls all;
    all.set(iov::concurrency::exclusive).set(iov::atomicity::publication).set(iov::temporality::once);
    all.set(iov::spatiality::random).set(iov::on_error::stop).set(iov::persistence_point::by_persist);
    all.eventual(2s).request_size(47008, 47008).collection_size(0, 1 << 20);
    CHECK(all.is(iov::concurrency::exclusive) && all.is(iov::atomicity::publication) && all.is(iov::on_error::stop));
    CHECK(all.is(iov::temporality::once) && all.is(iov::spatiality::random) && all.is(iov::consistency::eventual));
    CHECK(all.raw().eventual_ns == 2000000000 && all.raw().request_size.min == 47008);
    CHECK(iov::controls(all.to_string()).to_string() == all.to_string());
    all.bursty(30s).strided(1 << 20, 4096).atomic_unit(4096);
    CHECK(all.raw().drain_ns == 30000000000 && all.raw().block == 4096 && all.raw().atomic_unit == 4096);
    CHECK(all.is(iov::atomicity::unit) && all.is(iov::spatiality::strided) && all.is(iov::temporality::bursty));
    const iov::error e = THROWS(INVALID, iov::controls("consistency=perfect"));
    CHECK(contains(e.detail(), "perfect"));
    (void)THROWS(NOTFOUND, iov::controls().profile("nobody's"));

    iov::session s = iov::open("mem:controls");
    iov::workspace_options options;
    options.controls = "consistency=commit";
    iov::workspace w = s.create_workspace("ws", options);
    CHECK(w.create("c").controls().is(iov::consistency::commit));
    CHECK(w.create("d", "consistency=session").controls().is(iov::consistency::session));
    CHECK(s.check_controls("consistency=session").is(iov::concurrency::shared)); /* nothing is unset in an answer */
    CHECK(w.check_controls({}).is(iov::consistency::commit));
    CHECK(THROWS(REFUSED, s.check_controls("persistence=replicated")).clause() == "P4");
}

static void test_uuids() {
    const iov::uuid a = iov::uuid::make(), b = iov::uuid::make();
    CHECK(a && b && a != b && !iov::uuid() && iov::uuid() == iov::uuid() && (a < b || b < a));
    CHECK(iov::uuid::parse(a.to_string()) == a && a.to_string().size() == 41);
    (void)THROWS(INVALID, iov::uuid::parse("uuid:nonsense"));
}

MAIN(RUN(test_o4_types);
     RUN(test_sets);
     RUN(test_of_collections_and_groups);
     RUN(test_controls);
     RUN(test_uuids);)
