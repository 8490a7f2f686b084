/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation stores ten runs; then those that were hot are found and read back. With the argument `read` it only
 * looks for what another program has stored. */
#include <ioverbs.hpp>

#include <array>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

constexpr int runs = 10;
constexpr int lines = 65536;
constexpr std::size_t bytes = 16 * lines;

/* The CRC-32 of gzip and zlib. */
static std::uint32_t crc32(const std::string &data) {
    static const auto table = [] {
        std::array<std::uint32_t, 256> made{};
        for (std::uint32_t n = 0; n < made.size(); n++) {
            made[n] = n;
            for (int k = 0; k < 8; k++) {
                made[n] = made[n] & 1 ? made[n] >> 1 ^ 0xedb88320 : made[n] >> 1;
            }
        }
        return made;
    }();
    std::uint32_t crc = 0xffffffff;
    for (const char c : data) {
        crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
    }
    return ~crc;
}

/* What a run computed: 1 MiB. */
static std::string results(int run) {
    std::string data;
    data.reserve(bytes);
    for (int i = 0; i < lines; i++) {
        char line[32];
        data.append(line, static_cast<std::size_t>(std::snprintf(line, sizeof line, "run_%d %09d\n", run, i)));
    }
    return data;
}

static void store(iov::session &s) {
    iov::workspace_options options;
    options.indexes = {"temperature"};
    iov::workspace w = s.create_workspace("simulation", options);

    // Nobody reads a run before it is closed, so that nothing has to be published earlier.
    const iov::controls controls = "consistency=session";
    for (int i = 0; i < runs; i++) {
        const std::string data = results(i);
        const iov::metadata md{
            {"temperature", 290 + 5 * i}, {"experiment", "nacelle"}, {"iteration", i}, {"crc32", crc32(data)}};
        iov::collection c = w.create("run_" + std::to_string(i), controls, md);
        c.write(0, data);
        c.close(); // the destructor would do so too, but could not say that it failed
    }
}

/* Opens, reads and closes in one batch, which is one request. */
static std::string read_back(iov::session &s, iov::workspace &w, std::string_view name) {
    std::string data(bytes + 1, '\0'); // room for one more, so that too many would show
    iov::batch b(s);
    iov::collection c = b.lookup(w, name);
    const std::size_t read = b.read(c, 0, data);
    b.close(c);
    b.run(); // until here `data` is in use
    data.resize(b.status(read).bytes());
    return data;
}

static bool find(iov::session &s) {
    iov::workspace w = s.load_workspace("simulation");
    iov::search_options options;
    options.order = "iov.name";
    options.keys = {"crc32"};
    options.params = {310, "nacelle"};
    std::size_t matches = 0, total = 0;
    for (const iov::entry &found : w.search("temperature > ? and experiment = ?", options)) {
        const std::string data = read_back(s, w, found.name());
        const std::uint32_t crc = crc32(data);
        if (crc != found.get<std::uint32_t>("crc32")) {
            std::cerr << found.name() << " has another checksum than it was stored with: " << crc << '\n';
            return false;
        }
        std::printf("%s %zu %08x\n", std::string(found.name()).c_str(), data.size(), static_cast<unsigned>(crc));
        matches++;
        total += data.size();
    }
    std::printf("%zu matches, %zu bytes\n", matches, total);
    return true;
}

int main(int argc, char **argv) {
    try {
        iov::session s = iov::open(); // no URL: $IOVERBS_URL, or the default store
        if (argc < 2 || std::string_view(argv[1]) != "read") {
            store(s);
        }
        return find(s) ? 0 : 1;
    } catch (const iov::error &e) {
        std::cerr << e.what() << '\n'; // what happened, and what to do
        return 1;
    }
}
