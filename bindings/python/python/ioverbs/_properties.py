# SPDX-License-Identifier: Apache-2.0
"""Whether a workspace that is there has the properties that it was asked for with. Metadata are what it is born with, and
change; its end is mostly given as a time from now, which each run of a program and each rank of a job takes for itself: neither
is looked at."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING, Any

from ._errors import Exists

if TYPE_CHECKING:
    from ._workspace import Workspace


def _uid(owner: str | int) -> int | None:
    """The number of a user; ``None``: nobody knows that name."""
    if isinstance(owner, int):
        return owner
    try:
        return int(owner[4:]) if owner.startswith("uid:") else pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError):
        return None


def _differences(ws: Workspace, asked: dict[str, Any]) -> list[str]:
    found = []
    missing = [key for key in asked["indexes"] or () if key not in ws.indexes]
    if missing:
        found.append(f"no index of {', '.join(missing)}")
    if asked["controls"] is not None:
        granted = ws.session.check_controls(asked["controls"], workspace=ws)
        has = ws.session.check_controls(workspace=ws)
        found += [f"{name} is {has[name]}" for name in has if has[name] != granted[name]]
    numbers = [name for name in ("quota_bytes", "quota_collections", "owner") if asked[name] is not None]
    if numbers:
        stat = ws.stat()
        unlimited = (1 << 64) - 1
        for name in ("quota_bytes", "quota_collections"):
            quota = getattr(stat, name)
            if asked[name] is not None and asked[name] != (unlimited if quota is None else quota):
                found.append(f"{name} is {'unlimited' if quota is None else quota}")
        if asked["owner"] is not None and _uid(asked["owner"]) != stat.uid:
            found.append(f"it belongs to uid {stat.uid}")
    if asked["access"] is not None:
        found.append("its access list cannot be compared")
    return found


def check(ws: Workspace, asked: dict[str, Any]) -> None:
    """Fails with :class:`Exists` unless the workspace has what was asked for."""
    found = _differences(ws, asked)
    if found:
        ws.close()
        raise Exists(
            f"the workspace {ws.name!r} is there with other properties: {'; '.join(found)}. Open it without properties, "
            "and change them with set",
            "O1",
        )
