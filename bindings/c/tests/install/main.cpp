/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C++ of somebody who has IOVerbs installed, in two parts, which both include the header. */
#include <ioverbs.hpp>

#include <iostream>

std::string stored(iov::session &s);

int main() {
    try {
        iov::session s = iov::open("mem:installed");
        std::cout << stored(s) << ": ioverbs " << iov::version() << '\n';
        return 0;
    } catch (const iov::error &e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}
