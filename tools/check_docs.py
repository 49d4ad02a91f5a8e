"""Finds sentences in the documentation that are hard to read: `python tools/check_docs.py [--figures] [PAGE ...]`.

Without a page it reads README.md, docs/*.md and docs/lab/*.md, and holds docs and lab books to fewer words than WORDS_IN_ALL,
as `cat docs/*.md | wc -w` counts them. --figures prints a table of the pages as well. The exit status is 1 if anything is found.
Code, links' targets and generated parts (between `<!-- name: written by ... -->` and `<!-- end of name -->`) are counted, not read.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS_A_SENTENCE, MEAN_WORDS, WORDS_A_CELL = 25, 16, 12
WORDS_IN_ALL = {"docs": 30_000, "docs/lab": 15_000}

# What a pattern finds in a sentence, and what to write instead.
HARD_TO_READ = {
    r"^(Of|But for|Under)\b": "begin with the subject",
    r"\b(stands?|lies|lie|anew|once more|no longer|at no room|but for)\b": "a private word: name what happens",
    r"\b(ends? in|knows|asks) (?!for\b)": "a private verb of code: reads, accepts, supports, writes",
    r"\bthe same(?=[,.;:)]|$)": "'the same' as what? Repeat the noun",
    r"\bthose (of|that|who|which|whose|with|where)\b": "repeat the noun in place of 'those'",
    r"(?<![\w./])\.\d+": "a ratio: write '16 % faster than X', or 0.84 with its unit",
    r"\b(takes?|took|is|are|costs?) (0|1)?\.\d+ (of|to)\b": "a ratio: say of what, in percent",
    r"\([^()]*\([^()]*\)[^()]*\)": "a bracket inside a bracket",
    r";[^;]*;": "a chain of semicolons: make sentences",
}
_PATTERNS = {re.compile(pattern): advice for pattern, advice in HARD_TO_READ.items()}

_FENCE = re.compile(r"^ *(```|~~~)")
_GENERATED = re.compile(r"<!-- (\w[\w ]*): written by")
_END = re.compile(r"[.!?](?=[)\"”*_]*(?:\s|$))")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")


@dataclass(frozen=True)
class Text:
    """A paragraph, a list item, a heading or a cell of a table."""

    line: int
    words: str
    cell: bool = False


@dataclass(frozen=True)
class Finding:
    line: int
    advice: str
    sentence: str


def texts(page: str) -> Iterator[Text]:
    """The prose of a page, without code and without what is generated."""
    lines = iter(enumerate(page.splitlines(), 1))
    start, paragraph = 0, list[str]()
    for number, line in lines:
        generated = _GENERATED.search(line)
        if generated or _FENCE.match(line):
            end = re.compile(f"<!-- end of {generated[1]} -->") if generated else _FENCE
            next((_ for _, later in lines if end.search(later)), None)
            line = ""
        ended = not line.strip() or line.lstrip().startswith(("|", "#", "<", ">"))
        if (ended or re.match(r" *([-*]|\d+\.) ", line)) and paragraph:
            yield Text(start, _plain(" ".join(paragraph)))
            paragraph = []
        if line.lstrip().startswith("|"):
            cells = re.split(r"(?<!\\)\|", _plain(line.strip().strip("|")))
            yield from (Text(number, cell.strip(), cell=True) for cell in cells if re.search(r"\w", cell))
        elif not ended or line.startswith(">"):
            start = number if not paragraph else start
            paragraph.append(re.sub(r"^ *([-*>]|\d+\.) ", "", line).strip())
    if paragraph:
        yield Text(start, _plain(" ".join(paragraph)))


def _plain(markdown: str) -> str:
    """Code becomes one word, a link its text."""
    words = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", markdown)
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", words)
    return re.sub(r"<[^<>]+>|\*\*|__", "", words)


def sentences(text: str) -> list[str]:
    whole = _ABBREVIATIONS.sub(lambda found: found[0].replace(".", ""), text)
    return [part.strip() for part in _END.split(whole) if re.search(r"\w", part)]


def words(sentence: str) -> int:
    """What holds a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def findings(page: str) -> list[Finding]:
    found = []
    for text in texts(page):
        if text.cell and words(text.words) > WORDS_A_CELL:
            found.append(Finding(text.line, f"a cell of {words(text.words)} words, at most {WORDS_A_CELL}", text.words))
        for sentence in sentences(text.words):
            if not text.cell and words(sentence) > WORDS_A_SENTENCE:
                found.append(Finding(text.line, f"{words(sentence)} words, at most {WORDS_A_SENTENCE}", sentence))
            found += [Finding(text.line, advice, sentence) for pattern, advice in _PATTERNS.items() if pattern.search(sentence)]
    mean = mean_words(page)
    if mean > MEAN_WORDS:
        found.append(Finding(1, f"{mean:.1f} words a sentence on average, at most {MEAN_WORDS}", ""))
    return found


def mean_words(page: str) -> float:
    lengths = [words(sentence) for text in texts(page) if not text.cell for sentence in sentences(text.words)]
    return sum(lengths) / len(lengths) if lengths else 0.0


def over_budget(folder: Path, limit: int) -> Iterator[str]:
    count = sum(len(page.read_text().split()) for page in folder.glob("*.md"))
    if count >= limit:
        yield f"{folder.relative_to(ROOT)}: {count} words, fewer than {limit} are wanted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--figures", action="store_true", help="print the words, the mean sentence and the findings of each page")
    options = parser.parse_args()
    pages = options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/lab").glob("*.md"))]
    failed = False
    if options.figures:
        print(f"{'page':<40}{'words':>7}{'mean':>6}{'found':>6}")
    for page in pages:
        text = page.read_text()
        found = findings(text)
        failed |= bool(found)
        if options.figures:
            print(f"{page.name:<40}{len(text.split()):>7}{mean_words(text):>6.1f}{len(found):>6}")
        for finding in found if not options.figures else []:
            print(f"{page}:{finding.line}: {finding.advice}\n    {finding.sentence[:160]}")
    if not options.pages:
        for folder, limit in WORDS_IN_ALL.items():
            for excess in over_budget(ROOT / folder, limit):
                failed = True
                print(excess)
    sys.exit(failed)


if __name__ == "__main__":
    main()
