"""What is in a package, as ``agentfy-verify --report`` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentmove_tools.package.layout import memory_date

if TYPE_CHECKING:
    from agentmove_tools.package.archive_reader import Archive
    from agentmove_tools.package.contents import File, Package


def report_of(package: Package, archive: Archive) -> dict[str, object]:
    """What a package that has been checked holds, in JSON's types. Times are as in its events."""
    found = package.found
    config = found.config
    return {
        "agent": {
            "id": config.id,
            "name": config.name,
            "runtimeProfile": config.profile,
            "accessStrategy": config.access_strategy,
        },
        "archive": {
            "bytes": len(archive.data),
            "entries": len(archive.entries),
            "folders": sum(entry.is_folder for entry in archive.entries),
            "unpacked": sum(entry.size for entry in archive.entries),
        },
        "parts": counts_of(package),
        "skills": _skills(package),
        "memories": [
            {"path": path, "date": memory_date(path), "bytes": size}
            for path, size in found.sizes.items()
        ],
        "chats": [
            {
                "channel": chat.channel,
                "user": chat.user,
                "path": path,
                "events": chat.events,
                "repeats": chat.repeats,
                "first": chat.first,
                "last": chat.last,
                "types": chat.types,
            }
            for path, chat in found.chats.items()
        ],
        "events": sum(chat.events for chat in found.chats.values()),
        "access": package.may_speak(),
        "pending_secrets": found.secrets,
        **passed_over(package),
    }


def counts_of(package: Package) -> dict[str, int]:
    """How many files of each part a package has."""
    counts: dict[str, int] = {}
    for file in package.files:
        counts[file.part] = counts.get(file.part, 0) + 1
    return counts


def passed_over(package: Package) -> dict[str, Any]:
    """What of a package is not taken, and the warnings."""
    return {
        "unknown": package.unknown,
        "passed_over": [{"path": each.path, "why": each.why} for each in package.passed_over],
        "warnings": [
            {"path": path, "warning": warning}
            for path, warnings in sorted(package.found.warnings.items())
            for warning in warnings
        ],
    }


def _skills(package: Package) -> list[dict[str, object]]:
    heads: dict[str, File] = {}
    assets: dict[str, int] = {}
    for file in package.files:
        if file.part == "skill":
            heads[file.skill] = file
        elif file.part == "asset":
            assets[file.skill] = assets.get(file.skill, 0) + 1
    skills: list[dict[str, object]] = []
    for folder, file in heads.items():
        read = package.found.skills[file.path]
        skills.append(
            {
                "path": folder,
                "name": read.name,
                "description": read.description,
                "assets": assets.get(folder, 0),
            }
        )
    return skills
