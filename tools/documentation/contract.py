"""Prints every record and field of zoo/contract/schema.py as tables: `python -m tools.documentation.contract`."""

from __future__ import annotations

import inspect
import json

from tools.documentation.text import table
from zoo.contract.fields import MANIFEST, REQUIRED, TABLE, Field, fields_of
from zoo.contract.schema import RECORDS

_HEADER = ("key", "stands in", "holds", "left out in a table", "meaning")


def contract_tables() -> str:
    return "\n\n".join(f"#### {title[0].upper()}{title[1:]}\n{_words(record)}\n\n{_table(record)}" for title, record in RECORDS.items())


def _words(record: type) -> str:
    return " ".join((inspect.getdoc(record) or "").split())


def _table(record: type) -> str:
    stands = getattr(record, "stands_in", None)  # of a record that only tables have, or only the manifest
    rows = [_row(name, field, stands or field.stands) for name, field in fields_of(record).items()]
    return table(_HEADER, rows)


def _row(name: str, field: Field, stands: str) -> tuple[str, str, str, str, str]:
    key = f"`{field.table_key or name}`" if stands == TABLE else f"`{name}`"
    if field.table_key and stands != TABLE:
        key += f", in tables `{field.table_key}`"
    meaning = f"{field.meaning} Only where `kind` is {' or '.join(field.of)}." if field.of else field.meaning
    return key, stands, field.kind.words.replace("<", "&lt;"), "" if stands == MANIFEST else _default(field), meaning


def _default(field: Field) -> str:
    if field.default_words:
        return field.default_words
    return "refused" if field.default is REQUIRED else f"`{json.dumps(field.default)}`"


if __name__ == "__main__":
    print(contract_tables())
