"""A manifest entry as the static tables of capi/zoo_table.h: C that is C++ as well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from zoo.capi import contract_header
from zoo.capi.contract_header import MOST
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Argument, Form, Kernel, LaunchRule, MapRecipe, Option, Parameter, Variant
from zoo.errors import ManifestError

_NONE = "ZOO_NONE"
_ACROSS = 8  # entries of a line where each is a few characters
MOST_EXPRESSIONS = 65535  # of a kernel: their places are 16 bits, and the last of those stands for none
MOST_PLACES = 65535  # of whatever else is counted in 16 bits


def text(value: str) -> str:
    """A C string literal."""
    pieces = []
    for byte in value.encode():
        character = chr(byte)
        if character in '"\\?':  # `?` because two of them may begin a trigraph
            pieces.append("\\" + character)
        elif 32 <= byte < 127:
            pieces.append(character)
        else:
            pieces.append(f"\\{byte:03o}")
    return f'"{"".join(pieces)}"'


def integer(value: int) -> str:
    return "(-INT64_C(9223372036854775807) - 1)" if value == -(2**63) else f"INT64_C({value})"


def refuse_places(where: str, what: str, count: int) -> None:
    """ManifestError for more of something than the tables can number."""
    if count > MOST_PLACES:
        raise ManifestError(f"{where}: more than {MOST_PLACES:,} {what}, the C library takes no more")


def kernel_tables(kernel: Kernel, variants: Sequence[Variant], index: int, first_variant: int, cubins: dict[str, int]) -> tuple[str, str]:
    """The static arrays behind a kernel, and its entry in `zoo_kernels`. `cubins` are the places of the embedded files."""
    return _Writer(kernel, variants, index).write(first_variant, cubins)


class _Writer:
    def __init__(self, kernel: Kernel, variants: Sequence[Variant], index: int):
        self.kernel = kernel
        self.variants = variants
        self.prefix = f"k{index}"
        self.archs = list(dict.fromkeys(variant.arch for variant in variants))
        self.slots: dict[str, int] = {"sms": 0}
        self.expressions: dict[str, int] = {}
        self.parsed: list[Expression] = []
        self.arrays: list[str] = []
        self._reserve_slots()

    def _reserve_slots(self) -> None:
        """A scalar's own slot; the flags of an option or an array next to each other."""
        for argument in self.kernel.arguments.values():
            if argument.kind == "scalar":
                if argument.dtypes[0] != "f32":
                    self._slot(argument.name)
            else:
                for flag in ("present", "itemsize", *argument.dtypes):
                    self._slot(f"{argument.name}.{flag}", new=True)
        for name, option in self.kernel.options.items():
            for value in option.values:
                self._slot(f"{name}.{value}", new=True)

    def _slot(self, name: str, new: bool = False) -> int:
        if new and name in self.slots:
            raise ManifestError(f"the manifest's entry '{self.kernel.name}' is malformed: '{name}' stands for two things")
        return self.slots.setdefault(name, len(self.slots))

    def _expression(self, expression: Expression) -> int:
        found = self.expressions.get(expression.text)
        if found is None:
            found = self.expressions[expression.text] = len(self.parsed)
            self.parsed.append(expression)
            if len(self.parsed) > MOST_EXPRESSIONS:
                raise ManifestError(f"{self.kernel.name}: more than {MOST_EXPRESSIONS:,} expressions, the C library takes no more")
            self._check("stack", _stack_depth(expression))
            for name in expression.names:
                self._slot(name)
        return found

    def _expressions(self, expressions: Iterable[Expression], count: int) -> str:
        """Indices, filled up to `count` with the last, or with none."""
        indices = [str(self._expression(expression)) for expression in expressions]
        return "{" + ", ".join(indices + ["0"] * (count - len(indices))) + "}"

    def _check(self, what: str, count: int) -> None:
        if count > MOST[what]:
            raise ManifestError(f"{self.kernel.name}: {count} {what}, the C library takes at most {MOST[what]}")

    def _array(self, kind: str, name: str, entries: Sequence[str], per_line: int = 1) -> str:
        """Defines a static array and returns its name; NULL for an empty one, which C has not. What is named by the manifest's author has
        a number in `name`: their words stand in texts only, so that none can be a keyword or the name of another array."""
        if not entries:
            return "NULL"
        lines = [", ".join(entries[start : start + per_line]) for start in range(0, len(entries), per_line)]
        self.arrays.append(f"static const {kind} {self.prefix}_{name}[] = {{\n    " + ",\n    ".join(lines) + "};\n")
        return f"{self.prefix}_{name}"

    def write(self, first_variant: int, cubins: dict[str, int]) -> tuple[str, str]:
        kernel = self.kernel
        for what, entries in (("derived symbols", kernel.derived), ("constraints", kernel.constraints), ("variants", self.variants)):
            refuse_places(kernel.name, what, len(entries))
        rules = dict.fromkeys(variant.launch for variant in self.variants)
        launches = {rule: place for place, rule in enumerate(rules)}
        arguments = self._array("zoo_argument_entry", "arguments", [self._argument(a, i) for i, a in enumerate(kernel.arguments.values())])
        options = self._array("zoo_option_entry", "options", [self._option(n, o, i) for i, (n, o) in enumerate(kernel.options.items())])
        symbols = [f"{{{self._slot(name)}, {self._expression(expression)}}}" for name, expression in kernel.derived]
        derived = self._array("zoo_derived", "derived", symbols, _ACROSS)
        rows = [f"{{{self._expression(expression)}, {text(words)}}}" for expression, words in kernel.constraints]
        constraints = self._array("zoo_constraint", "constraints", rows)
        starts = self._array("zoo_launch_rule", "launches", [self._launch(rule, place) for rule, place in launches.items()])
        rows = [self._variant(variant, launches[variant.launch], i, cubins) for i, variant in enumerate(self.variants)]
        variants = self._array("zoo_variant", "variants", rows)
        archs = self._array("char *const", "archs", [text(arch) for arch in self.archs], _ACROSS)
        expressions = self._code()
        names = self._array("char *const", "names", [text(name) for name in self.slots], _ACROSS)
        self._check("symbols", len(self.slots))
        self._check("arguments", len(kernel.arguments))
        self._check("options", len(kernel.options))
        counts = (self.slots, kernel.arguments, kernel.options, kernel.derived, kernel.constraints, self.variants, self.archs)
        entry = (
            f"{{{text(kernel.name)}, {text(kernel.summary)}, {names}, {expressions}, {arguments}, {options}, {derived},\n"
            f"     {constraints}, {starts}, {variants}, {archs}, {', '.join(str(len(c)) for c in counts)}, {first_variant}}}"
        )
        return f"/* {kernel.name} */\n\n" + "\n".join(self.arrays), entry

    def _argument(self, argument: Argument, index: int) -> str:
        refuse_places(self.kernel.name, f"forms of {argument.name}", len(argument.forms))
        dtypes = self._array("char *const", f"argument{index}_dtypes", [text(dtype) for dtype in argument.dtypes], _ACROSS)
        forms = self._array("zoo_form", f"argument{index}_forms", [self._form(form) for form in argument.forms])
        if argument.kind == "scalar":
            slot = 0 if argument.dtypes[0] == "f32" else self.slots[argument.name]
        else:
            slot = self.slots[f"{argument.name}.present"]
        kind, whole, number = "ZOO_NO_DEFAULT", 0, 0.0
        if isinstance(argument.default, float):
            if not math.isfinite(argument.default):
                raise ManifestError(f"{self.kernel.name}: {argument.name}: a default of {argument.default} cannot be written in C")
            kind, number = "ZOO_NUMBER_DEFAULT", argument.default
        elif argument.default is not None:
            kind, whole = "ZOO_INTEGER_DEFAULT", argument.default
        may_be = next(
            (place for place, one in enumerate(self.kernel.arguments) if (argument.name, one) in self.kernel.in_place), "ZOO_NONE"
        )
        return (
            f"{{{text(argument.name)}, {text(argument.help)}, {dtypes}, {forms}, {len(argument.dtypes)}, {len(argument.forms)}, {slot}, "
            f"{int(argument.optional)}, {may_be}, {contract_header.access(argument.access)}, {argument.alignment}, {kind}, {integer(whole)}, {number!r}}}"
        )

    def _form(self, form: Form) -> str:
        count = MOST["dimensions"]
        self._check("dimensions", len(form.shape))
        shape, strides = self._expressions(form.shape, count), self._expressions(form.strides or (), count)
        return f"{{{self._expression(form.when)}, {len(form.shape)}, {shape}, {int(form.strides is None)}, {strides}}}"

    def _option(self, name: str, option: Option, index: int) -> str:
        values = self._array("char *const", f"option{index}_values", [text(value) for value in option.values], _ACROSS)
        slot = self.slots[f"{name}.{option.values[0]}"]
        return f"{{{text(name)}, {values}, {len(option.values)}, {option.values.index(option.default)}, {slot}}}"

    def _launch(self, rule: LaunchRule, index: int) -> str:
        self._check("parameters", len(rule.parameters))
        self._check("block bytes", rule.parameter_bytes)
        self._check("tensor maps", sum(parameter.kind == "tensor_map" for parameter in rule.parameters))
        entries = [self._parameter(parameter, f"launch{index}_map{place}") for place, parameter in enumerate(rule.parameters)]
        parameters = self._array("zoo_parameter", f"launch{index}_parameters", entries)
        return (
            f"{{{self._expressions(rule.grid, 3)}, {self._expressions(rule.cluster, 3)}, "
            f"{self._expression(rule.alone)}, {int(rule.programmatic)}, {len(rule.parameters)}, {rule.parameter_bytes}, {parameters}}}"
        )

    def _parameter(self, parameter: Parameter, map_name: str) -> str:
        argument = expression = _NONE
        recipe = "NULL"
        if parameter.argument is not None:
            argument = str(list(self.kernel.arguments).index(parameter.argument))
        if parameter.value is not None:
            expression = str(self._expression(parameter.value))
        if parameter.recipe is not None:
            recipe = self._array("zoo_map_recipe", map_name, [self._map(parameter.recipe)])
        return f"{{{contract_header.parameter_kind(parameter.kind)}, {parameter.offset}, {parameter.size}, {argument}, {expression}, {recipe}}}"

    def _map(self, recipe: MapRecipe) -> str:
        rank = len(recipe.dims)
        return (
            f"{{{rank}, {self._expressions(recipe.dims, 5)}, {self._expressions(recipe.strides, 4)}, {self._expressions(recipe.box, 5)}, "
            f"{self._expressions(recipe.element_strides, 5)}, {contract_header.map_type(recipe.dtype)}, {contract_header.swizzle(recipe.swizzle)}, "
            f"{contract_header.promotion(recipe.l2_promotion)}, {contract_header.fill(recipe.fill)}}}"
        )

    def _variant(self, variant: Variant, launch: int, index: int, cubins: dict[str, int]) -> str:
        self._check("constants", len(variant.constants))
        refuse_places(self.kernel.name, f"numbers of {variant.name}", len(variant.numbers))
        numbers = [f"{{{self._slot(name)}, {integer(value)}}}" for name, value in variant.constants.items()]
        constants = self._array("zoo_constant", f"v{index}_constants", numbers, _ACROSS)
        measured = [self._number(variant, name) for name in variant.numbers]
        own_numbers = self._array("zoo_cost_number", f"v{index}_numbers", measured, _ACROSS)
        several = [argument for argument in self.kernel.arguments.values() if argument.kind == "array" and len(argument.dtypes) > 1]
        fixed = variant.dtypes
        chosen = [str(argument.dtypes.index(fixed[argument.name])) if argument.name in fixed else "ZOO_ANY" for argument in several]
        values = [
            str(option.values.index(variant.options[name])) if option.compiled else "ZOO_ANY"
            for name, option in self.kernel.options.items()
        ]
        dtypes = self._array("uint8_t", f"v{index}_dtypes", chosen, _ACROSS)
        options = self._array("uint8_t", f"v{index}_options", values, _ACROSS)
        return (
            f"{{{text(variant.name)}, {text(variant.symbol)}, {self.archs.index(variant.arch)}, {launch}, {self._expression(variant.when)}, "
            f"{self._expression(variant.cost)}, {cubins[variant.file]}, {variant.threads}, {variant.shared}, {variant.static_shared}, {len(variant.constants)}, {len(variant.numbers)}, {constants}, {own_numbers}, {dtypes}, {options}}}"
        )

    def _number(self, variant: Variant, name: str) -> str:
        value, tensor = integer(variant.numbers[name]), integer(variant.tensor.get(name, 0))
        return f"{{{self._slot(name)}, {value}, {tensor}, {contract_header.rate(variant.rates.get(name))}}}"

    def _code(self) -> str:
        code: list[str] = []
        entries = []
        for expression in self.parsed:
            start = len(code)
            for opcode, operand in expression.code:
                number = self.slots[operand] if opcode == "load" else operand
                code.append(f"{{{integer(number)}, {contract_header.opcode(opcode)}}}")
            bare = self.slots[expression.text] if expression.names == (expression.text,) else _NONE
            entries.append(f"{{{text(expression.text)}, {self.prefix}_code + {start}, {len(expression.code)}, {bare}}}")
        self._array("zoo_instruction", "code", code, _ACROSS)
        return self._array("zoo_expression", "expressions", entries)


def _stack_depth(expression: Expression) -> int:
    """The most values on the stack along any path; every path to an instruction has the same number there."""
    depths, deepest = {0: 0}, 0
    for position, (opcode, operand) in enumerate(expression.code):
        depth = depths.get(position)
        if depth is None:  # behind an unconditional jump that nothing lands on
            continue
        pops = {"constant": -1, "load": -1, "negate": 0, "not": 0, "truth": 0, "jump": 0}.get(opcode, 1)
        after = depth - pops
        deepest = max(deepest, depth, after)
        if opcode in ("jump", "jump_if_zero"):
            depths[operand] = after
        if opcode != "jump":
            depths[position + 1] = after
    return deepest
