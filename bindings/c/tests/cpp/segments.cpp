/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: bytes with an id instead of a name. */
#include "test.hpp"

#include <vector>

static void test_segments() {
    iov::session s = iov::open("mem:cpp-segments");
    iov::workspace w = s.create_workspace("w");
    iov::segments segments(w), others(w);
    const iov::uuid id = segments.create(1000);
    CHECK(segments.size(id) == 1000);
    segments.put(id, 990, "ten bytes."sv);
    std::vector<char> back(10);
    others.get(id, 990, back);
    CHECK(std::string(back.begin(), back.end()) == "ten bytes.");
    THROWS(FILETOOBIG, segments.put(id, 991, "ten bytes."sv));
    THROWS(INVALID, segments.get(id, 991, back));
    iov::collection c = segments.open(id);
    c.write(0, "as a collection"sv);
    others.get(id, 0, back);
    CHECK(std::string(back.begin(), back.end()) == "as a colle");
    const iov::uuid committed = segments.create(10, iov::controls("consistency=commit"));
    segments.remove(committed);
    const iov::uuid block = iov::uuid::make();
    CHECK(segments.read(block, std::uint64_t{1} << 40, back) == 0 && back[0] == 0);
    segments.write(block, std::uint64_t{1} << 40, "edge"sv);
    CHECK(others.read(block, std::uint64_t{1} << 40, back) == 4 && back[0] == 'e' && back[4] == 0);
    segments.remove(id);
    THROWS(NOTFOUND, others.get(id, 0, back));
}

MAIN(RUN(test_segments);)
