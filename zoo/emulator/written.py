"""A result as data for other programs: JSON, and SARIF 2.1.0 as code hosts show it beside the source."""

from pathlib import Path
from urllib.parse import quote

from .check import Result
from .findings import KINDS


def as_json(result: Result, **about: object) -> dict:
    """A dictionary of the run."""
    return {
        **about,
        "runs": [
            {
                "schedule": name,
                "kernel": report.kernel,
                "completed": report.completed,
                "warp_instructions": report.warp_instructions,
                "bytes": report.bytes,
            }
            for name, report in result.reports
        ],
        "causes": [
            {
                "kind": cause.kind,
                "severity": cause.severity,
                "count": cause.count,
                "schedules": list(cause.schedules),
                "message": cause.message,
                "ptx_lines": cause.lines,
                "here": _place(cause.place),
                "here_too": [_place(place) for place in cause.places[1:]],
                "others": [{"access": access, **_place(place)} for access, place in cause.others],
                "also": [other.headline for other in cause.also],
                "manual": cause.manual,
                "add": cause.add,
            }
            for cause in result.causes
        ],
        "wrong": result.wrong,
    }


def _place(place):
    return {"ptx_line": place.line, "instruction": place.text, "source": place.source, "called_at": list(place.callers)}


def as_sarif(result: Result, ptx: object, version: str) -> dict:
    """A log of one run. A result is at its line of the source, or of the PTX where that has no source lines."""
    kinds = list(dict.fromkeys(cause.kind for cause in result.causes))
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "zoo emulate",
                        "version": version,
                        "rules": [{"id": kind, "shortDescription": {"text": KINDS[kind]}} for kind in kinds],
                    }
                },
                "results": [
                    {
                        "ruleId": cause.kind,
                        "ruleIndex": kinds.index(cause.kind),
                        "level": cause.severity,
                        "message": {"text": f"{cause.message}\nManual: {cause.manual}. Add: {cause.add}."},
                        "occurrenceCount": cause.count,
                        "locations": [_location(cause.place, ptx)],
                        "relatedLocations": [
                            *(_location(place, ptx, access) for access, place in cause.others),
                            *(_location(place, ptx, "here, too") for place in cause.places[1:]),
                            *(_physical(caller, "called at") for caller in cause.place.callers),
                        ],
                    }
                    for cause in result.causes
                ],
            }
        ],
    }


def _location(place, ptx, message=None):
    return _physical(place.source or f"{ptx}:{place.line or 1}", message)


def _physical(source, message=None):
    path, _, line = source.rpartition(":")
    try:
        uri = quote(Path(path).resolve().relative_to(Path.cwd()).as_posix())
    except ValueError:
        uri = Path(path).resolve().as_uri()
    found = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(1, int(line))}}}
    return {**found, "message": {"text": message}} if message else found
