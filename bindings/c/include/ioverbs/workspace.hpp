/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file workspace.hpp
 * @brief Workspaces and groups: where names are (O1, O3).
 */
#ifndef IOVERBS_WORKSPACE_HPP
#define IOVERBS_WORKSPACE_HPP

#include "collection.hpp"

namespace iov {

class group;

/**
 * Where a name is or goes: the root of a workspace, or a group. For arguments; made from a workspace or a group, which
 * must be open, or that throws INVALID.
 */
class place {
  public:
    place(const iov::workspace &w);
    place(const iov::group &g);

    /** The session, workspace and group (null = the root), for functions of ioverbs.h. */
    ::iov_session *session() const noexcept { return session_; }
    ::iov_workspace *workspace() const noexcept { return workspace_; }
    ::iov_collection *group() const noexcept { return group_; }

  private:
    ::iov_session *session_;
    ::iov_workspace *workspace_;
    ::iov_collection *group_ = nullptr;
};

namespace detail {

// The names in a workspace's root or in a group. Each call is done when it returns.
template <class Self> class names {
  public:
    /** Creates and opens a collection; nullptr = without a name. EXISTS, REFUSED. */
    [[nodiscard]] collection create(const text &name, const iov::controls &asked = {},
                                    const metadata_view &pairs = {}) {
        const place p = here();
        ::iov_collection *out = nullptr;
        check(::iov_collection_create(nullptr, p.workspace(), p.group(), name.c_str(), pairs.get(), &asked.raw(),
                                      &out));
        return collection(out, p.session());
    }
    /** Opens a collection; the controls may be stronger than its own, and hints. NOTFOUND, BUSY, REFUSED. */
    [[nodiscard]] collection lookup(const text &name_or_uuid, const iov::controls &asked = {}) const {
        const place p = here();
        ::iov_collection *out = nullptr;
        check(::iov_collection_lookup(nullptr, p.workspace(), p.group(), name_or_uuid.c_str(), &asked.raw(), &out));
        return collection(out, p.session());
    }
    /** Creates and opens a group. EXISTS, REFUSED. */
    [[nodiscard]] iov::group create_group(const text &name, const iov::controls &asked = {},
                                          const metadata_view &pairs = {});
    /** Opens a group; nullptr = this one again, so that a workspace gives its root. NOTFOUND, BUSY. */
    [[nodiscard]] iov::group lookup_group(const text &name_or_uuid, const iov::controls &asked = {}) const;
    /** Removes a name, and the collection or empty group with its last name; open handles go on (O10).
     *  NOTFOUND, NOTEMPTY, BUSY. */
    void remove(const text &name_or_uuid) {
        const place p = here();
        check(::iov_collection_delete(nullptr, p.workspace(), p.group(), name_or_uuid.c_str()));
    }
    /** Moves a name, replacing what the new one named unless flags (IOV_RENAME_*) say otherwise.
     *  NOTFOUND, EXISTS, NOTEMPTY (replaced group), INVALID (a cycle). */
    void rename(const text &from, const place &to_place, const text &to, std::uint32_t flags = 0) {
        const place p = here();
        check(::iov_rename(nullptr, p.workspace(), p.group(), from.c_str(), to_place.group(), to.c_str(), flags));
    }
    /** The same within this place. */
    void rename(const text &from, const text &to, std::uint32_t flags = 0) { rename(from, here(), to, flags); }

    /** Searches collections and groups: all of a workspace, or the members of a group; no predicate = all.
     *  INVALID: the detail has the position. */
    [[nodiscard]] cursor search(const text &predicate = nullptr, const search_options &options = {}) const {
        return find(predicate, options, false);
    }
    /** How many a search would find. */
    std::uint64_t count(const text &predicate = nullptr, const search_options &options = {}) const {
        const cursor found = find(predicate, options, true);
        std::uint64_t n = 0;
        check(::iov_cursor_count(found.get(), &n, -1));
        return n;
    }
    /** The names in this place alone, one result each. */
    [[nodiscard]] cursor list(const search_options &options = {}) const {
        const place p = here();
        const search_attr attr(options, nullptr);
        ::iov_cursor *out = nullptr;
        check(::iov_group_list(nullptr, p.workspace(), p.group(), attr.get(), &out));
        return cursor(out);
    }

  protected:
    names() noexcept = default;
    names(names &&) noexcept = default;
    names &operator=(names &&) noexcept = default;
    ~names() = default;

  private:
    place here() const { return place(static_cast<const Self &>(*this)); }
    cursor find(const text &predicate, const search_options &options, bool count) const {
        const place p = here();
        const search_attr attr(options, p.group(), count);
        ::iov_cursor *out = nullptr;
        check(::iov_collection_search(nullptr, p.workspace(), predicate.c_str(), attr.get(), &out));
        return cursor(out);
    }
};

} // namespace detail

/**
 * A group, which holds names but no bytes. Its metadata, close() and the like are as a collection's. The workspace it
 * was opened through has to stay open for create, lookup and all else that has to do with names.
 */
class group : public object, public detail::names<group> {
  public:
    /** An empty one. */
    group() noexcept = default;
    /** Takes over a group of ioverbs.h, which was opened through this place's workspace. */
    group(::iov_collection *handle, const place &where) noexcept
        : object(handle, where.session()), workspace_(where.workspace()) {}

    /** The workspace that it was opened through, for functions of ioverbs.h. */
    ::iov_workspace *workspace_handle() const noexcept { return workspace_; }

  private:
    ::iov_workspace *workspace_ = nullptr;
};

/**
 * A workspace: namespace, allocation domain, unit of protection. Any thread, any time. The destructor ends the handle,
 * not the workspace; what was opened through it goes on.
 */
class workspace : public detail::owner<::iov_workspace, ::iov_workspace_close>, public detail::names<workspace> {
  public:
    /** An empty one. */
    workspace() noexcept = default;
    /** Takes over a workspace of ioverbs.h; `s` is its session. */
    workspace(::iov_workspace *handle, ::iov_session *s) noexcept : owner(handle), session_(s) {}

    /** Opens the root: its metadata are the workspace's, its exclusive hold covers the workspace (X2). BUSY. */
    [[nodiscard]] group root(const iov::controls &asked = {}) const { return lookup_group(nullptr, asked); }
    /** Usage, quota and expiry. */
    ::iov_stat stat() const {
        ::iov_stat out = IOV_STAT_INIT;
        check(::iov_workspace_stat(nullptr, get(), &out));
        return out;
    }
    /** Changes properties; new defaults are for collections created later. REFUSED. */
    void set(const workspace_options &options) {
        const detail::workspace_attr attr(options);
        check(::iov_workspace_set(nullptr, get(), attr.get()));
    }
    /** Gives the workspace another name. EXISTS. */
    void set_name(const text &name) { check(::iov_workspace_rename(nullptr, get(), name.c_str())); }
    /** Publishes this session's creates, deletes, renames and puts in it (C7). CONFLICT, EXISTS. */
    void commit() { check(::iov_workspace_commit(nullptr, get())); }
    /** Makes them, and all bytes this session wrote in it, survive what the persistence level says (P5, P7). */
    void persist() { check(::iov_workspace_persist(nullptr, get())); }
    /** What a create in it would get for these controls. REFUSED: the detail has the offer. */
    iov::controls check_controls(const iov::controls &asked) const {
        iov::controls granted;
        ::iov_workspace *w = detail::required(get(), "workspace");
        check(::iov_controls_check(session_, w, &asked.raw(), &granted.raw()));
        return granted;
    }

    /** The session that it was opened through, for making batches. */
    ::iov_session *session_handle() const noexcept { return session_; }

  private:
    ::iov_session *session_ = nullptr;
};

inline place::place(const iov::workspace &w)
    : session_(w.session_handle()), workspace_(detail::required(w.get(), "workspace")) {}

inline place::place(const iov::group &g)
    : session_(g.session_handle()), workspace_(g.workspace_handle()), group_(detail::required(g.get(), "group")) {}

template <class Self>
group detail::names<Self>::create_group(const text &name, const iov::controls &asked, const metadata_view &pairs) {
    const place p = here();
    ::iov_collection *out = nullptr;
    check(::iov_group_create(nullptr, p.workspace(), p.group(), name.c_str(), pairs.get(), &asked.raw(), &out));
    return group(out, p);
}

template <class Self>
group detail::names<Self>::lookup_group(const text &name_or_uuid, const iov::controls &asked) const {
    const place p = here();
    ::iov_collection *out = nullptr;
    check(::iov_group_lookup(nullptr, p.workspace(), p.group(), name_or_uuid.c_str(), &asked.raw(), &out));
    return group(out, p);
}

inline workspace session::create_workspace(const text &name, const workspace_options &options) {
    const detail::workspace_attr attr(options);
    ::iov_workspace *out = nullptr;
    check(::iov_workspace_create(get(), name.c_str(), attr.get(), &out));
    return workspace(out, get());
}

inline workspace session::load_workspace(const text &name_or_uuid) {
    ::iov_workspace *out = nullptr;
    check(::iov_workspace_load(get(), name_or_uuid.c_str(), &out));
    return workspace(out, get());
}

inline void collection::link(const place &where, const text &name) {
    check(::iov_link(nullptr, get(), where.group(), name.c_str()));
}

} // namespace iov

#endif
