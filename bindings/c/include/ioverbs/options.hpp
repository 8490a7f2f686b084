/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file options.hpp
 * @brief How sessions are opened, workspaces made, batches run, searches done and locks taken.
 *
 * Plain structs: what is left as it is means the default. They are copied by the calls that take them; what they only
 * point to has to live until that call returns.
 */
#ifndef IOVERBS_OPTIONS_HPP
#define IOVERBS_OPTIONS_HPP

#include "controls.hpp"
#include "metadata.hpp"
#include "uuid.hpp"

namespace iov {

/** How to open a store. */
struct session_options {
    std::uint32_t flags = 0;                           /**< IOV_SESSION_* */
    std::optional<std::chrono::nanoseconds> deadline;  /**< of calls and batches that set none; default 60 s */
    std::uint64_t cache_bytes = 0;                     /**< limit of the client's caches; 0 = the default */
    std::string program;                               /**< shown to operators; default the executable's name */
    std::string token;                                 /**< credential; default from the configuration */
    std::string config;                                /**< configuration file; default the usual places */
};

/** A workspace's properties. In workspace::set, what is left as it is stays. */
struct workspace_options {
    std::optional<iov::controls> controls;    /**< default controls */
    std::optional<::iov_layout> layout;       /**< default layout, from IOV_LAYOUT_INIT */
    metadata_view pairs;                      /**< metadata to put */
    std::string owner;                        /**< "alice" or "uid:1000"; at create the default is the caller */
    std::string access;                       /**< "user:bob=read,group:cfd=write"; at create owner only */
    std::vector<std::string> indexes;         /**< metadata keys to keep an index of (O5) */
    std::uint64_t quota_bytes = 0;            /**< at create 0 = IOV_UNLIMITED */
    std::uint64_t quota_collections = 0;      /**< likewise */
    std::optional<time_point> expires;        /**< at create the default is never */
};

/** How a batch runs. */
struct batch_options {
    iov::on_error policy = iov::on_error::unset;      /**< default proceed (B1-B3) */
    std::uint8_t progress = IOV_PROGRESS_AUTO;        /**< IOV_PROGRESS_*: who drives it when nobody waits */
    uuid id;                                          /**< from uuid::make; a retry with it applies once (B3) */
    std::optional<std::chrono::nanoseconds> deadline; /**< from its start; default the session's */
    void *user_data = nullptr;                        /**< comes back in iov_completion */
    std::optional<iov::controls> controls;            /**< hints and stronger promises for its operations */

    batch_options() = default;
    /** With this policy. */
    batch_options(iov::on_error p) : policy(p) {}
    /** With this deadline. */
    template <class Rep, class Period>
    batch_options(std::chrono::duration<Rep, Period> d) : deadline(detail::nanoseconds(d)) {}
};

/** How to search. */
struct search_options {
    std::vector<std::string> keys;   /**< metadata to return with each match; "*" = all user keys */
    std::string order;               /**< "temperature desc, iov.name"; default as they come, fastest */
    std::uint64_t limit = 0;         /**< 0 = all */
    std::vector<value> params;       /**< values for each '?' of the predicate, in order */
    bool deep = false;               /**< in a group: look also into the groups below it */
};

/** Whether others may hold a lock on the same bytes. */
enum class lock_mode : std::uint32_t { shared = IOV_LOCK_SHARED, exclusive = IOV_LOCK_EXCLUSIVE };

/** Which lock to take (O11). */
struct lock_options {
    lock_mode mode = lock_mode::exclusive;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;                      /**< 0 = to the end, wherever that moves */
    std::uint64_t owner = 0;                       /**< tells owners within one session apart; 0 = the handle */
    std::optional<std::chrono::nanoseconds> lease; /**< what a dead owner still keeps it; default 30 s */
};

namespace detail {

// An iov_workspace_attr and what it points to.
class workspace_attr {
  public:
    explicit workspace_attr(const workspace_options &o) : indexes_(pointers(o.indexes)) {
        raw_.controls = o.controls ? &o.controls->raw() : nullptr;
        raw_.layout = o.layout ? &*o.layout : nullptr;
        raw_.metadata = o.pairs.get();
        raw_.owner = or_null(o.owner);
        raw_.access = or_null(o.access);
        raw_.indexes = indexes_.data();
        raw_.index_count = indexes_.size();
        raw_.quota_bytes = o.quota_bytes;
        raw_.quota_collections = o.quota_collections;
        raw_.expires_ns = o.expires ? o.expires->time_since_epoch().count() : 0;
    }
    workspace_attr(const workspace_attr &) = delete;
    workspace_attr &operator=(const workspace_attr &) = delete;
    const ::iov_workspace_attr *get() const noexcept { return &raw_; }

  private:
    std::vector<const char *> indexes_;
    ::iov_workspace_attr raw_ = IOV_WORKSPACE_ATTR_INIT;
};

// An iov_search_attr and what it points to.
class search_attr {
  public:
    search_attr(const search_options &o, ::iov_collection *group, bool count = false) : keys_(pointers(o.keys)) {
        params_.reserve(o.params.size());
        for (const value &v : o.params) {
            params_.push_back(v.raw());
        }
        raw_.flags = (o.deep ? std::uint32_t{IOV_SEARCH_DEEP} : 0U) | (count ? std::uint32_t{IOV_SEARCH_COUNT} : 0U);
        raw_.group = group;
        raw_.order = or_null(o.order);
        raw_.limit = o.limit;
        raw_.keys = keys_.data();
        raw_.key_count = keys_.size();
        raw_.params = params_.data();
        raw_.param_count = params_.size();
    }
    search_attr(const search_attr &) = delete;
    search_attr &operator=(const search_attr &) = delete;
    const ::iov_search_attr *get() const noexcept { return &raw_; }

  private:
    std::vector<const char *> keys_;
    std::vector<::iov_value> params_;
    ::iov_search_attr raw_ = IOV_SEARCH_ATTR_INIT;
};

inline ::iov_batch_attr batch_attr(const batch_options &o) noexcept {
    ::iov_batch_attr raw = IOV_BATCH_ATTR_INIT;
    raw.on_error = static_cast<std::uint8_t>(o.policy);
    raw.progress = o.progress;
    raw.id = o.id.raw();
    raw.deadline_ns = o.deadline ? deadline(*o.deadline) : 0;
    raw.user_data = o.user_data;
    raw.controls = o.controls ? &o.controls->raw() : nullptr;
    return raw;
}

inline ::iov_lock_attr lock_attr(const lock_options &o, bool only_try = false) noexcept {
    ::iov_lock_attr raw = IOV_LOCK_ATTR_INIT;
    raw.mode = static_cast<std::uint32_t>(o.mode);
    raw.flags = only_try ? std::uint32_t{IOV_LOCK_TRY} : 0U;
    raw.range = {o.offset, o.length};
    raw.owner = o.owner;
    raw.lease_ns = o.lease ? deadline(*o.lease) : 0;
    return raw;
}

} // namespace detail
} // namespace iov

#endif
