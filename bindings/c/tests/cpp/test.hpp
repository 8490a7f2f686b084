/* SPDX-License-Identifier: Apache-2.0 */
/* What the C++ test programs share. They are compiled as C++17, and as C++20 where the compiler can. */
#ifndef IOV_TEST_HPP
#define IOV_TEST_HPP

#include <ioverbs.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

/* A condition that must hold. */
#define CHECK(...) ((__VA_ARGS__) ? (void)0 : kit::failed(__FILE__, __LINE__, #__VA_ARGS__))
/* What must throw iov::error with IOV_E##kind; the error is the value. */
#define THROWS(kind, ...) kit::thrown(__FILE__, __LINE__, #__VA_ARGS__, IOV_E##kind, [&] { (void)(__VA_ARGS__); })
/* Runs a function of this program and says so. */
#define RUN(test) (test(), (void)std::printf("    %s\n", #test))

namespace kit {

[[noreturn]] inline void failed(const char *file, int line, const char *what) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s:%d: %s\n    last error: %s\n", file, line, what, ::iov_error_detail());
    std::exit(1);
}

template <class F> iov::error thrown(const char *file, int line, const char *what, int kind, F &&run) {
    try {
        run();
    } catch (const iov::error &e) {
        if (e.code() == kind) {
            return e;
        }
        std::fprintf(stderr, "%s:%d: %s\n    threw %d (%s), expected %d (%s)\n", file, line, what, e.code(), e.what(),
                     kind, ::iov_strerror(kind));
        std::exit(1);
    }
    std::fprintf(stderr, "%s:%d: %s\n    threw nothing, expected %s\n", file, line, what, ::iov_strerror(kind));
    std::exit(1);
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/* The first bytes of a collection as a text. */
inline std::string text_of(const iov::collection &c, std::uint64_t offset = 0, std::size_t length = 255) {
    std::string out(length, '\0');
    out.resize(c.read(offset, out));
    return out;
}

} // namespace kit

/* What is thrown out of a test is a failure. */
#define MAIN(...)                                                      \
    int main() {                                                       \
        try {                                                          \
            __VA_ARGS__                                                \
        } catch (const std::exception &e) {                            \
            std::fflush(stdout);                                       \
            std::fprintf(stderr, "unexpected exception: %s\n", e.what()); \
            return 1;                                                  \
        }                                                              \
        return 0;                                                      \
    }

using namespace std::literals;
using kit::contains;
using kit::text_of;

#endif
