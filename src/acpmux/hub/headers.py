"""What the headers of a host's frames say, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acpmux.model.process import Blocker
from acpmux.rules import messages as m
from acpmux.untyped import as_list, as_object


@dataclass(frozen=True, slots=True)
class LaunchTold:
    """What a host tells of its launch record: (server name, source), what added nothing, and where it looked."""

    problems: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    servers: tuple[tuple[str, str], ...] = ()


def ended_of(rows: Any) -> tuple[m.Ended, ...]:
    return tuple(m.Ended(int(row[0]), str(row[2]), str(row[3])) for row in rows or ())


def retired_of(header: Mapping[str, Any]) -> m.Retired:
    freed_bytes, took_ms = int(header.get("freed_bytes") or 0), int(header.get("took_ms") or 0)
    return m.Retired(ended_of(header.get("ended")), ended_of(header.get("left")), freed_bytes, took_ms)


def host_ended_of(header: Mapping[str, Any]) -> m.HostEnded:
    return m.HostEnded(ended_of(header.get("ended")), ended_of(header.get("left")))


def launch_of(header: Mapping[str, Any]) -> LaunchTold:
    told = as_object(header.get("launch"))
    return LaunchTold(
        tuple(str(problem) for problem in as_list(told.get("problems"))),
        tuple(str(place) for place in as_list(told.get("places"))),
        tuple((str(name), str(source)) for name, source in as_list(told.get("servers"))),
    )


def blockers_of(header: Mapping[str, Any]) -> tuple[Blocker, ...]:
    return tuple(Blocker(int(b[0]), int(b[1]), str(b[2]), str(b[3])) for b in header.get("blockers") or ())
