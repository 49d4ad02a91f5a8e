"""Findings grouped by what has to change in the kernel: one missing fence is one cause, however many instructions read behind it."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from .findings import OTHER_CTA, SEVERITIES
from .manual import OF_BULK_COPIES, OF_COPIES, OF_CTAS, RULES

MOST_REGISTERS = 8  # that a text names
MOST_PLACES = 4  # of one kind that a text names
_LONGEST_TEXT = 160  # characters of an instruction
# Kinds where one addition serves all instructions of a basic block, and all that meet one write.
_FENCES = ("missing-proxy-fence", "missing-tcgen05-fence", "missing-wgmma-fence", "missing-wait")
_COPIES = re.compile(r"(@\S+ )?cp\.async\.(?!bulk)")
_BULK_COPIES = re.compile(r"(@\S+ )?cp\.async\.bulk\.(tensor\.\dd\.)?shared::\w+\.global\b")
_LIST = re.compile(r"\{([^{}]*)\}")
_REGISTER = re.compile(r"%[a-zA-Z_]+\d+\b")
_QUOTED = re.compile(r"`[^`]*`")
_VARYING = re.compile(r"%[\w.]+|0x[0-9a-fA-F]+|\d+")


def _shorter_lists(text):
    """A text whose lists in braces name at most eight registers."""

    def shorten(match):
        items = [item.strip() for item in match[1].split(",")]
        return match[0] if len(items) <= MOST_REGISTERS else f"{{{items[0]}, ..., {items[-1]}}}"

    return _LIST.sub(shorten, text)


def _registers(message):
    """The registers that a message is about, without those of instructions that it quotes."""
    return _REGISTER.findall(_QUOTED.sub("", message))


def shortened(text):
    """An instruction that fits a line or two."""
    text = _shorter_lists(text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _relative(source):
    """`file:line`, relative to the current directory where the file lies below it; other headers as they are included."""
    path, _, line = source.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return source.rpartition("/include/")[2]


@dataclass(frozen=True)
class Place:
    """An instruction of the PTX and where it comes from."""

    line: int | None
    text: str | None
    source: str | None  # file:line
    callers: tuple = ()  # file:line each, innermost first

    @classmethod
    def of(cls, item):
        """Of a finding or an earlier access."""
        return cls(item.line, item.text, item.source, item.callers)

    @property
    def key(self):
        """Equal for instructions of one line of the source, or of the PTX where that has no source lines."""
        return (self.source, self.callers) if self.source else self.line

    def __str__(self):
        parts = []
        if self.source is not None:
            parts.append(", called at ".join(map(_relative, (self.source, *self.callers))))
        if self.line is not None:
            parts.append(f"PTX line {self.line}" + (f" `{shortened(self.text)}`" if self.text else ""))
        return ", ".join(parts) or "the end of the CTA"


@dataclass
class Cause:
    """Findings that one change of the kernel removes. `schedules`: names of those under which it was found."""

    kind: str
    severity: str
    findings: list = field(default_factory=list)
    schedules: dict = field(default_factory=dict)
    keys: set = field(default_factory=set)
    also: list = field(default_factory=list)  # causes that are gone with this one

    @property
    def count(self):
        return sum(finding.count for finding in self.findings)

    @property
    def lines(self):
        """The PTX lines, in order."""
        return sorted({finding.line for finding in self.findings if finding.line is not None})

    @property
    def place(self):
        return Place.of(self.findings[0])

    @property
    def places(self):
        """Where it was found, once for each line of the source or else of the PTX; `place` is the first. Accesses that are in `others` are left out."""
        found = {}
        for finding in self.findings:
            place = Place.of(finding)
            found.setdefault(place.key, place)
        met = {place.key for _, place in self.others}
        return [place for key, place in found.items() if key == self.place.key or key not in met]

    @property
    def others(self):
        """("written" | "read", Place) of earlier accesses, one for each line of the source or else of the PTX."""
        found = {}
        for finding in self.findings:
            for one in finding.others:
                access, place = one.access, Place.of(one)
                if place == self.place and finding is not self.findings[0]:
                    continue  # seen from the other side
                found.setdefault((access, place.key), (access, place))
        return list(found.values())

    @property
    def message(self):
        registers = dict.fromkeys(name for finding in self.findings for name in _registers(finding.message))
        message = _shorter_lists(self.findings[0].message)
        others = [name for name in registers if name not in _registers(message)]
        if not others:
            return message
        named, left = others[: MOST_REGISTERS - 1], len(others) - MOST_REGISTERS + 1
        return f"{message}; so {'is' if len(others) == 1 else 'are'} {', '.join(named)}" + (f" and {left} more" if left > 0 else "")

    @property
    def manual(self):
        return RULES[self.kind][0]

    @property
    def add(self):
        if self.kind == "race" and OTHER_CTA in self.findings[0].message:
            return OF_CTAS
        if self.kind == "race":
            texts = [place.text or "" for place in (self.place, *(place for _, place in self.others))]
            if any(_BULK_COPIES.match(text) for text in texts):
                return OF_BULK_COPIES
            if any(access == "written" and _COPIES.match(place.text or "") for access, place in self.others):
                return OF_COPIES
        return RULES[self.kind][1]

    @property
    def headline(self):
        """One line: what, where, how often."""
        place = self.place
        where = _relative((place.callers or (place.source,))[-1]) if place.source else f"PTX line {place.line}" if place.line else "exit"
        at = f", {len(self.lines)} PTX lines" if len(self.lines) > 1 else ""
        return f"{self.severity}: {self.kind} at {where} ({self.count} time{'s' if self.count > 1 else ''}{at})"

    @property
    def facts(self):
        """(label, words) of what a reader asks next."""
        facts = []
        for places in ([("here", place) for place in self.places], self.others):
            facts += places[:MOST_PLACES]
            if len(places) > MOST_PLACES:
                facts.append(("", f"and {len(places) - MOST_PLACES} more places"))
        return [
            *facts,
            *(("also", cause.headline) for cause in self.also),
            ("manual", self.manual),
            ("add", self.add),
        ]

    def __str__(self):
        lines = [self.headline, *(f"    {line.strip()}" for line in self.message.splitlines())]
        return "\n".join(lines + [f"    {label:<8} {words}" for label, words in self.facts])


def _keys(finding):
    """What findings of one cause share: each of them is enough."""
    severity = None if finding.kind == "race" else finding.severity  # one side of it may read a value that nobody uses
    block = ("block", finding.kernel, finding.block)
    places = [(finding.source, finding.callers) if finding.source else block]
    if finding.kind not in (*_FENCES, "race"):
        words = finding.message.partition(": ")[0] if finding.kind == "out-of-bounds" else finding.message
        return [(finding.kind, severity, places[0], _VARYING.sub("#", words))]
    if finding.kind in _FENCES:
        places.append(block)
    places += [(one.source, one.callers) if one.source else (finding.kernel, one.line) for one in (finding, *finding.others)]
    return [(finding.kind, severity, place) for place in places]


def causes(reports):
    """The causes of the findings of [(schedule, report)], errors first."""
    found = []
    for schedule, report in reports:
        for finding in report.findings:
            keys = set(_keys(finding))
            same = [cause for cause in found if cause.keys & keys]
            cause = same[0] if same else Cause(finding.kind, finding.severity)
            if not same:
                found.append(cause)
            for other in same[1:]:
                cause.findings += other.findings
                cause.schedules |= other.schedules
                cause.keys |= other.keys
                found.remove(other)
            cause.severity = min(cause.severity, finding.severity, *(other.severity for other in same[1:]), key=SEVERITIES.index)
            cause.findings.append(finding)
            cause.schedules[schedule] = None
            cause.keys |= keys
    races = [cause for cause in found if cause.kind == "race"]
    for cause in [cause for cause in found if cause.kind == "uninitialised-shared"]:
        places = {key[2] for key in cause.keys}
        race = next((race for race in races if places & {key[2] for key in race.keys}), None)
        if race is not None:  # the reader overtakes the writer under some schedules, and the race says so
            race.also.append(cause)
            found.remove(cause)
    return sorted(found, key=lambda cause: SEVERITIES.index(cause.severity))
