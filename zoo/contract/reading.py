"""A manifest's entry as records: what zoo/contract/schema.py declares, and the rules that several fields make together.

A manifest without a pin may hold anything. What passes here resolves without meeting a value of the wrong kind: every reader of
the manifest goes through `parse_kernel`. The build gives what it lowers from tables to the same functions.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.fields import Malformed, inside, one_of, read, refuse
from zoo.contract.schema import (
    PARAMETERS,
    SCALAR_DTYPES,
    SYMBOL,
    Argument,
    Constraint,
    Form,
    Kernel,
    LaunchRule,
    MapRecipe,
    Option,
    Parameter,
    Variant,
    block_layout,
)
from zoo.errors import ExpressionError, ManifestError

_MOST_FLAGS = 4096  # combinations of flags that the forms of one argument may depend on
_MOST_STEPS = 1 << 17  # of evaluating all of its conditions with each of them
_MOST_ARGUMENTS = 64


def parse_kernel(name: str, entry: object) -> Kernel:
    """The kernel of a manifest's entry. Raises ManifestError, saying where, for one that zoo/contract/schema.py does not allow."""
    try:
        return _kernel(name, entry)
    except (Malformed, ExpressionError) as error:
        raise ManifestError(f"the manifest's entry '{name}' is malformed: {error}") from None


def _kernel(name: str, entry: object) -> Kernel:
    values = read(Kernel, entry)
    if list(values["fields"].values()) != name.split(".") or next(iter(values["fields"])) != "op":
        raise Malformed(f" is {values['fields']}, expected the words of '{name}' in their order, op first").inside(".fields")
    values["options"] = {key: _at(f".options.{key}", option, data) for key, data in values["options"].items()}
    if len(values["arguments"]) > _MOST_ARGUMENTS:
        raise Malformed(f" are {len(values['arguments'])}, expected at most {_MOST_ARGUMENTS}").inside(".arguments")
    arguments: dict[str, Argument] = {}
    for index, data in enumerate(values["arguments"]):
        with inside(f".arguments[{index}]"):
            one = argument(data)
            if one.name in arguments or one.name in values["options"]:
                raise Malformed(f" is '{one.name}', which is already taken").inside(".name")
            arguments[one.name] = one
    check_forms(arguments, values["options"])
    values["derived"] = tuple(_at(f".derived[{index}]", _derived, pair) for index, pair in enumerate(values["derived"]))
    values["constraints"] = tuple(_at(f".constraints[{index}]", constraint, data) for index, data in enumerate(values["constraints"]))
    launches = {key: _at(f".launches.{key}", launch, data, arguments) for key, data in values["launches"].items()}
    chosen = _Choices(values["options"], arguments, launches)
    values["variants"] = tuple(_at(f".variants[{index}]", _variant, data, chosen) for index, data in enumerate(values["variants"]))
    kernel = Kernel(**{**values, "name": name, "arguments": arguments, "launches": launches})
    read_arrays = {one.name for one in arguments.values() if one.kind == "array" and not one.written}
    written = {one.name for one in arguments.values() if one.written}
    for name, output in kernel.in_place:
        if name not in read_arrays or output not in written:
            raise Malformed(f" has '{name}_may_be_{output}', expected an array that is read and an array that is written").inside(
                ".promises"
            )
    return kernel


def _at(step: str, make: Any, *data: Any) -> Any:
    try:
        return make(*data)
    except Malformed as error:
        raise error.inside(step) from None


def option(data: object) -> Option:
    values = read(Option, data)
    if values["default"] not in values["values"]:
        _refuse("default", values["default"], one_of(values["values"]))
    return Option(**values)


def argument(data: object) -> Argument:
    values = read(Argument, data)
    is_array, dtypes, default = values["kind"] == "array", values["dtypes"], values["default"]
    forms = tuple(_at(f".forms[{index}]", form, one) for index, one in enumerate(values["forms"]))
    if is_array:
        if not forms:
            _refuse("forms", [], "at least one form")
        if default is not None:
            _refuse("default", default, "null: only scalars have one")
        if not values["compiled"] and len(dtypes) == 1:
            _refuse("compiled", False, "true, as there is only one dtype")
    else:
        if len(dtypes) != 1 or dtypes[0] not in SCALAR_DTYPES:
            _refuse("dtypes", list(dtypes), f"one of {', '.join(SCALAR_DTYPES)} for a scalar")
        for key, fixed in (("forms", ()), ("access", "read"), ("optional", False)):
            if values[key] != fixed:
                _refuse(key, values[key], f"{fixed!r} for a scalar")
        _check_default(default, dtypes[0])
    return Argument(**{**values, "forms": forms})


def _check_default(default: int | float | None, dtype: str) -> None:
    if dtype == "f32" or default is None:
        return
    bits = 8 * DTYPES[dtype].bytes
    if type(default) is not int or not -(1 << (bits - 1)) <= default < 1 << (bits - 1):
        _refuse("default", default, f"an integer that fits {bits} bits")


def form(data: object) -> Form:
    values = read(Form, data)
    shape, strides = values["shape"], values["strides"]
    if strides is not None and len(strides) != len(shape):
        _refuse("strides", [one.text for one in strides], f"{len(shape)} expressions, as many as in the shape")
    return Form(**values)


def _derived(pair: tuple[str, str]) -> tuple[str, Expression]:
    symbol, text = pair
    if not SYMBOL.fullmatch(symbol):
        refuse(list(pair), f"[symbol, expression], the symbol a name ({SYMBOL.pattern})")
    return symbol, _expression(text)


def _expression(text: str) -> Expression:
    try:
        return Expression(text)
    except ExpressionError as error:
        raise Malformed(f": {error}") from None


def constraint(data: object) -> tuple[Expression, str]:
    values = Constraint(**read(Constraint, data))
    return values.expression, values.words


def check_forms(arguments: Mapping[str, Argument], options: Mapping[str, Option]) -> None:
    """In every call one form of each array holds."""
    flags: dict[str, tuple[str, str | None]] = {f"{name}.{one}": (name, one) for name, option in options.items() for one in option.values}
    for name, one in arguments.items():
        if one.kind == "array":
            flags |= {f"{name}.{dtype}": (name, dtype) for dtype in one.dtypes}
            flags[f"{name}.present"] = (f"{name}.present", "present")
            flags[f"{name}.itemsize"] = (name, None)
    choices = {name: option.values for name, option in options.items()} | {name: one.dtypes for name, one in arguments.items()}
    for place, one in enumerate(arguments.values()):
        with inside(f".arguments[{place}].forms"):
            _check_conditions([form.when for form in one.forms], flags, choices)


def _check_conditions(
    conditions: list[Expression], flags: Mapping[str, tuple[str, str | None]], choices: Mapping[str, tuple[str, ...]]
) -> None:
    names = {name for condition in conditions for name in condition.names}
    if (not names and any(condition.text == "1" for condition in conditions)) or not conditions:
        return
    for name in sorted(names - set(flags)):
        raise Malformed(f" are chosen by '{name}', which is no flag")
    deciding = list(dict.fromkeys(flags[name][0] for name in sorted(names)))
    possible = [choices.get(one, ("present", "absent")) for one in deciding]
    count = 1
    for values in possible:
        count *= len(values)
    if count > _MOST_FLAGS:
        raise Malformed(f" depend on {count} combinations of flags, expected at most {_MOST_FLAGS}")
    steps = count * sum(len(condition.code) for condition in conditions)
    if steps > _MOST_STEPS:
        raise Malformed(f" take {steps:,} steps to try with every combination of flags, expected at most {_MOST_STEPS:,}")
    for combination in itertools.product(*possible):
        chosen = dict(zip(deciding, combination, strict=True))
        known = {name: _flag(chosen[flags[name][0]], flags[name][1]) for name in names}
        if not any(condition.evaluate(known) for condition in conditions):
            raise Malformed(f": none holds with {', '.join(f'{one} = {value}' for one, value in chosen.items()) or 'any call'}")


def _flag(chosen: str, value: str | None) -> int:
    """Of a flag that asks for `value`; of one that asks for the bytes of the dtype, None."""
    return DTYPES[chosen].bytes if value is None else int(chosen == value)


def launch(data: object, arguments: Mapping[str, Argument]) -> LaunchRule:
    values = read(LaunchRule, data)
    parameters = tuple(_at(f".parameters[{index}]", parameter, one, arguments) for index, one in enumerate(values["parameters"]))
    offsets, end = block_layout(one.kind for one in parameters)
    for index, (one, offset) in enumerate(zip(parameters, offsets, strict=True)):
        size = PARAMETERS[one.kind][0]
        if (one.offset, one.size) != (offset, size):
            said = f" ({one.kind}) has {one.size} bytes at offset {one.offset}, in a struct it has {size} at {offset}"
            raise Malformed(said).inside(f".parameters[{index}]")
    names = [one.name for one in parameters]
    if len(set(names)) != len(names):
        _refuse("parameters", names, "parameters of different names")
    if values["parameter_bytes"] != end:
        _refuse("parameter_bytes", values["parameter_bytes"], f"{end}, which its parameters take")
    return LaunchRule(**{**values, "parameters": parameters})


_RECIPE = tuple(MapRecipe.__dataclass_fields__)


def parameter(data: Any, arguments: Mapping[str, Argument]) -> Parameter:
    if type(data) is not dict:
        refuse(data, "a table")
    kind = data.get("kind")
    if type(kind) is not str or kind not in PARAMETERS:
        _refuse("kind", kind, one_of(PARAMETERS))
    is_map = kind == "tensor_map"
    values = read(Parameter, data, kind, _RECIPE if is_map else ())
    if "argument" in values:
        with inside(".argument"):
            check_fits(kind, values["argument"], arguments.values())
    if is_map:
        values["recipe"] = _recipe({key: value for key, value in data.items() if key not in values})
    return Parameter(**values)


def check_fits(kind: str, name: str, arguments: Collection[Argument]) -> None:
    """A pointer or a tensor map is of an array, an f32 of such a scalar."""
    fitting = [one.name for one in arguments if (one.kind == "array" if kind != "f32" else one.kind == "scalar" and one.dtypes == ("f32",))]
    if name not in fitting:
        refuse(name, f"{'an f32 scalar' if kind == 'f32' else 'an array argument'}; those are: {', '.join(fitting) or 'none'}")


def _recipe(data: dict[str, object]) -> MapRecipe:
    recipe = MapRecipe(**read(MapRecipe, data))
    check_rank(recipe)
    return recipe


def check_rank(recipe: MapRecipe) -> None:
    rank = len(recipe.dims)
    for key, count in (("strides", rank - 1), ("box", rank), ("element_strides", rank)):
        given: tuple[Expression, ...] = getattr(recipe, key)
        if len(given) != count:
            expressions = "1 expression" if count == 1 else f"{count} expressions"
            _refuse(key, [one.text for one in given], f"{expressions} of a map of {rank} dimensions")


class _Choices:
    """What the variants of a kernel choose from."""

    def __init__(self, options: Mapping[str, Option], arguments: Mapping[str, Argument], launches: Mapping[str, LaunchRule]):
        self.options = {name: one.values for name, one in options.items() if one.compiled}
        self.dtypes = {name: one.dtypes for name, one in arguments.items() if one.kind == "array" and len(one.dtypes) > 1}
        self.launches = launches


def _variant(data: object, choices: _Choices) -> Variant:
    values = read(Variant, data)
    for key, allowed, every in (("options", choices.options, True), ("dtypes", choices.dtypes, False)):
        chosen = values[key]
        if not chosen.keys() <= allowed.keys() or (every and len(chosen) < len(allowed)):
            _refuse(key, chosen, f"{'one of each of' if every else 'of'} {', '.join(allowed) or 'none'}")
        for name, value in chosen.items():
            if value not in allowed[name]:
                _refuse(f"{key}.{name}", value, one_of(allowed[name]))
    if values["launch"] not in choices.launches:
        _refuse("launch", values["launch"], one_of(choices.launches))
    rule = values["launch"] = choices.launches[values["launch"]]
    if rule.signature != values["signature"]:
        names = ", ".join(one.name for one in rule.parameters)
        said = f" is {values['signature']}: the cubin was compiled with other parameters than its launch passes, {names}: {rule.signature}"
        raise Malformed(said).inside(".signature")
    return Variant(**values)


def _refuse(key: str, value: object, expected: str) -> NoReturn:
    raise Malformed(f" is {reprlib.repr(value)}, expected {expected}").inside(f".{key}")
