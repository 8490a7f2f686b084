/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file ioverbs.hpp
 * @brief IOVerbs for C++17 and later: ownership and exceptions over ioverbs.h, and nothing else.
 *
 *     #include <ioverbs.hpp>
 *
 *     iov::session s = iov::open();                                    // $IOVERBS_URL, or the default store
 *     iov::workspace w = s.create_workspace("simulation");
 *     {
 *         iov::collection c = w.create("run_1", "profile=checkpoint", iov::metadata{{"temperature", 310}});
 *         c.write(0, field);                                           // a std::vector<double>, say
 *         c.close();                                                   // reports what a destructor could not
 *     }
 *     for (const iov::entry &found : w.search("temperature > 300"))
 *         w.lookup(found.name()).read(0, field);
 *
 * The rules of ioverbs.h hold here as well. In short:
 *
 * - Ownership. session, workspace, group, collection, cursor, batch, request, metadata, lock, buffer, registration and
 *   view own what they stand for and can be moved, not copied. Destructors end it and never throw; close() does the
 *   same at once and reports errors. One that was moved from, or closed, is empty: it can be destroyed, assigned to and
 *   closed again; any other use throws INVALID. release() gives the C handle away, get() lends it to functions of
 *   ioverbs.h.
 * - Errors. What cannot be done throws iov::error, with kind, clause, outcome and detail; functions that are noexcept,
 *   or say so, do not. The list behind a function has the kinds that belong to it, without IOV_E.
 * - Memory. No call copies data. Buffers of blocking calls are free when these return. Those of batches and of async_*
 *   calls have to outlive the request and be left alone until it has completed; a request's destructor waits for that.
 * - Times. Durations and time points of std::chrono. Nothing outlives its deadline (default 60 s).
 * - Threads. Sessions, workspaces, groups and collections: any thread, any time, but for moves, close() and
 *   destructors. All else: one thread at a time.
 *
 * Names are those of ioverbs.h; `delete`, `volatile`, `explicit` and `continue`, which are words of C++, have become
 * remove, in_memory, by_persist and proceed.
 */
#ifndef IOVERBS_HPP
#define IOVERBS_HPP

#if __cplusplus < 201703L
#error "ioverbs.hpp needs C++17: compile with -std=c++17 or later"
#endif

#include "ioverbs/batch.hpp"
#include "ioverbs/collection.hpp"
#include "ioverbs/controls.hpp"
#include "ioverbs/cursor.hpp"
#include "ioverbs/error.hpp"
#include "ioverbs/lock.hpp"
#include "ioverbs/memory.hpp"
#include "ioverbs/metadata.hpp"
#include "ioverbs/options.hpp"
#include "ioverbs/request.hpp"
#include "ioverbs/segment.hpp"
#include "ioverbs/session.hpp"
#include "ioverbs/transfer.hpp"
#include "ioverbs/uuid.hpp"
#include "ioverbs/workspace.hpp"

#endif
