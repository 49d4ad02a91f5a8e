"""zoo_contract.h: the numbers that the C library shares with zoo/contract, written from there.

python -m zoo.capi.contract_header        writes zoo/capi/zoo_contract.h; tools/generate_docs.py does so too
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from zoo.contract import chips, limits
from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.expressions import OPCODES
from zoo.contract.schema import ACCESS, PARAMETERS, RATES
from zoo.contract.tensor_map import DTYPES as MAP_DTYPES
from zoo.contract.tensor_map import FLOATS, L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES

HEADER = Path(__file__).parent / "zoo_contract.h"

# What the C library has room for; zoo/capi/table.py refuses a kernel that needs more.
MOST = {
    "symbols": 256, "arguments": 48, "options": 16, "constants": 32, "dimensions": 8, "parameters": 64, "block bytes": 4096,
    "stack": 32, "tensor maps": 16,
}  # fmt: skip

# What the hardware and the driver allow.
LIMITS = {
    **dict(zip(("grid x", "grid y", "grid z"), limits.GRID, strict=True)), "cluster": limits.CLUSTER,
    "persistent cluster": limits.PERSISTENT_CLUSTER, "shared": limits.SHARED,
    "map extent bits": limits.MAP_EXTENT_BITS, "map stride bits": limits.MAP_STRIDE_BITS, "map box": limits.MAP_BOX,
    "map step": limits.MAP_STEP, "map alignment": limits.MAP_ALIGNMENT, "map box row": limits.MAP_BOX_ROW,
    "map packed alignment": limits.MAP_PACKED_ALIGNMENT, "map packed row": limits.MAP_PACKED_ROW,
}  # fmt: skip

_TEMPLATE = """\
/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers that zoo.c and the tables of `zoo export` share with zoo/contract. Written by tools/generate_docs.py from
 * zoo/contract/{{chips,dtypes,expressions,limits,schema,tensor_map}}.py; do not edit.
 */
#ifndef ZOO_CONTRACT_H
#define ZOO_CONTRACT_H
/* clang-format off */

/* `zoo export` refuses a kernel that needs more. */
enum {{
{most}
}};

/* of grids, clusters, shared memory and tensor maps: zoo/contract/limits.py says what each is */
enum {{
{limits}
}};

/* dtype(name, bytes, DLPack's code, bits and lanes, whether plain bytes may carry it) */
#define ZOO_DTYPES(dtype) \\
{dtypes}
enum {{
{dtype_places}
}};

/* of expressions: they take what is on the stack, unless they have an operand */
enum {{
{opcodes}
}};

typedef enum {{
{parameters}
}} zoo_parameter_kind;

typedef enum {{
{access}
}} zoo_access;

/* of chips, to which numbers of costs are proportional */
typedef enum {{
{rates}
}} zoo_rate;

/* An H200, by which zoo/contract/chips.py has the numbers of other chips */
enum {{
{chip}
}};

/* in the driver's name of a part of a chip, behind the chip's */
#define ZOO_PART_OF_A_CHIP "{part}"

/* chip(its name, times as many cycles for a multiplication as an H200) */
#define ZOO_SLOW_TENSOR_CORES(chip) \\
{slow}

/* of tensor maps, by the driver's numbers; type(name, bits of an element in memory, whether it has NaN) */
#define ZOO_MAP_TYPES(type) \\
{map_types}
enum {{
{map_type_numbers}
}};

/* swizzle(name, the most bytes of an inner row of the box; 0: any) */
#define ZOO_MAP_SWIZZLES(swizzle) \\
{swizzles}
enum {{
{swizzle_numbers}
}};

enum {{
{promotions}
}};

enum {{
{fills}
}};

#endif
"""


def opcode(name: str) -> str:
    return f"ZOO_DO_{name.upper()}"


def parameter_kind(name: str) -> str:
    return f"ZOO_{name.upper()}"


def access(name: str) -> str:
    return f"ZOO_ACCESS_{name.upper()}"


def rate(name: str | None) -> str:
    return f"ZOO_RATE_{(name or 'none').upper()}"


def map_type(name: str) -> str:
    return f"ZOO_MAP_{name.upper()}"


def swizzle(name: str) -> str:
    return f"ZOO_SWIZZLE_{name.upper()}"


def promotion(name: str) -> str:
    return f"ZOO_PROMOTE_{name.upper()}"


def fill(name: str) -> str:
    return f"ZOO_FILL_{name.upper()}"


def header_text() -> str:
    dtypes = (
        f'"{one.name}", {one.bytes}, {", ".join(map(str, one.dlpack))}, {_truth(one.name in CARRIED_BY_BYTES)}' for one in DTYPES.values()
    )
    return _TEMPLATE.format(
        most=_enumerators((f"ZOO_MOST_{name.replace(' ', '_').upper()}", count) for name, count in MOST.items()),
        limits=_enumerators((f"ZOO_LIMIT_{name.replace(' ', '_').upper()}", number) for name, number in LIMITS.items()),
        dtypes=_rows("dtype", dtypes),
        dtype_places=_enumerators((f"ZOO_DTYPE_{name.upper()}", place) for place, name in enumerate(DTYPES)),
        opcodes=_enumerators((opcode(name), number) for number, name in enumerate(OPCODES)),
        parameters=_enumerators((parameter_kind(name), number) for number, name in enumerate(PARAMETERS)),
        access=_enumerators((access(name), number) for number, name in enumerate(ACCESS)),
        rates=_enumerators((rate(name), number) for number, name in enumerate((None, *RATES))),
        chip=_enumerators(
            (f"ZOO_H200_{name}", getattr(chips, name)) for name in ("MULTIPROCESSORS", "CLOCK", "BANDWIDTH", "MEMORY", "BOTH")
        ),
        part=chips.PART,
        slow=_rows("chip", (f'"{name}", {cycles}' for name, cycles in chips.SLOW_TENSOR_CORES.items())),
        map_types=_rows("type", (f'"{name}", {bits}, {_truth(name in FLOATS)}' for name, (_, bits) in in_order(MAP_DTYPES))),
        map_type_numbers=_enumerators((map_type(name), number) for name, (number, _) in in_order(MAP_DTYPES)),
        swizzles=_rows("swizzle", (f'"{name}", {most or 0}' for name, (_, most) in in_order(SWIZZLES))),
        swizzle_numbers=_enumerators((swizzle(name), number) for name, (number, _) in in_order(SWIZZLES)),
        promotions=_enumerators((promotion(name), number) for name, number in L2_PROMOTIONS.items()),
        fills=_enumerators((fill(name), number) for name, number in OUT_OF_BOUNDS_FILLS.items()),
    )


def in_order(numbered: Mapping[str, tuple[int, int | None]] | Mapping[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int | None]]]:
    """As the rows of a C array, whose places are the driver's numbers."""
    ordered: list[tuple[str, tuple[int, int | None]]] = sorted(numbered.items(), key=lambda one: one[1][0])
    assert [number for _, (number, _) in ordered] == list(range(len(ordered)))
    return ordered


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _enumerators(numbered: Iterable[tuple[str, int]]) -> str:
    return ",\n".join(f"    {name} = {number}" for name, number in numbered)


def _rows(macro: str, rows: Iterable[str]) -> str:
    return " \\\n".join(f"    {macro}({row})" for row in rows)


if __name__ == "__main__":
    HEADER.write_text(header_text())
