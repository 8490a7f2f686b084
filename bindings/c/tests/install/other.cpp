/* SPDX-License-Identifier: Apache-2.0 */
/* The other part of main.cpp. */
#include <ioverbs.hpp>

std::string stored(iov::session &s) {
    iov::collection c = s.create_workspace("ws").create("c");
    const std::string_view text = "stored and read";
    c.async_write(0, text).wait();
    std::string back(text.size(), '\0');
    back.resize(c.read(0, back));
    return back;
}
