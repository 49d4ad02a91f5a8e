"""The recipe language: integer expressions over symbolic sizes.

    expression := alternative [ "if" alternative "else" expression ]
    alternative := conjunction { "or" conjunction }
    conjunction := negation { "and" negation }
    negation   := "not" negation | comparison
    comparison := sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum ]
    sum        := product { ( "+" | "-" ) product }
    product    := unary { ( "*" | "//" | "%" ) unary }
    unary      := "-" unary | atom
    atom       := integer | name | function "(" expression { "," expression } ")" | "(" expression ")"
    function   := "min" | "max" | "ceil_div" | "round_up"
    name       := identifier { "." identifier }

Every value is a signed 64-bit integer; a result outside that range is an error, as is a division by zero.
`//` and `%` round towards minus infinity. Comparisons and logic give 0 or 1; `and`, `or` and `if` evaluate
only the side they need. An expression compiles to the stack code below, which this module and the C
library both run, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from zoo.errors import ExpressionError

SMALLEST, LARGEST = -(2**63), 2**63 - 1

Code = list[tuple[str, Any]]  # (opcode, operand): a number, of a jump a position, of a load a name

# The opcodes' numbers are part of the C library's generated tables: append, never reorder.
OPCODES = (
    "constant", "load", "add", "subtract", "multiply", "floor_divide", "modulo", "negate", "not",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "minimum", "maximum", "ceil_div", "round_up", "truth", "jump", "jump_if_zero",
)  # fmt: skip

_BINARY = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
    "+": "add", "-": "subtract", "*": "multiply", "//": "floor_divide", "%": "modulo",
}  # fmt: skip
_FUNCTIONS = {"min": "minimum", "max": "maximum", "ceil_div": "ceil_div", "round_up": "round_up"}
_KEYWORDS = {"if", "else", "and", "or", "not"}
# Words that mean something in an expression, so that nothing else may be named by them.
RESERVED = ("sms", *_FUNCTIONS, *sorted(_KEYWORDS))
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*(?:\.\w+)*)|(//|==|!=|<=|>=|[-+*%<>(),]))", re.ASCII)


_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b,
    "modulo": lambda a, b: a % b,
    "equal": lambda a, b: int(a == b),
    "not_equal": lambda a, b: int(a != b),
    "less": lambda a, b: int(a < b),
    "less_equal": lambda a, b: int(a <= b),
    "greater": lambda a, b: int(a > b),
    "greater_equal": lambda a, b: int(a >= b),
    "minimum": min,
    "maximum": max,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, b: -(-a // b) * b,
}


class Expression:
    """A parsed expression: `text`, the `names` it reads, and its stack `code`, a list of (opcode, operand)."""

    def __init__(self, text: str | int):
        self.text = str(text)
        self.code, self.names = _parsed(self.text)

    def of_code(self, code: Code) -> Expression:
        """This expression with other code: a part of it, or what is left of it where some values are known."""
        made = object.__new__(Expression)
        made.text, made.code, made.names = self.text, code, self.names
        return made

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, values: Mapping[str, int]) -> int:
        stack: list[int] = []
        position, code = 0, self.code
        while position < len(code):
            opcode, operand = code[position]
            position += 1
            if opcode == "constant":
                stack.append(operand)
            elif opcode == "load":
                try:
                    stack.append(values[operand])
                except KeyError:
                    raise ExpressionError(f"'{self.text}': nothing is named '{operand}'") from None
            elif opcode == "jump":
                position = operand
            elif opcode == "jump_if_zero":
                if stack.pop() == 0:
                    position = operand
            elif opcode == "not":
                stack.append(int(stack.pop() == 0))
            elif opcode == "truth":
                stack.append(int(stack.pop() != 0))
            else:
                right = stack.pop()
                left = 0 if opcode == "negate" else stack.pop()
                try:
                    result = _COMPUTE["subtract" if opcode == "negate" else opcode](left, right)
                except ZeroDivisionError:
                    raise ExpressionError(f"'{self.text}' divides by zero") from None
                if type(result) is int and not SMALLEST <= result <= LARGEST:  # what a framework traces is no int yet
                    raise ExpressionError(f"'{self.text}' does not fit 64 bits")
                stack.append(result)
        return stack.pop()


@lru_cache(maxsize=4096)  # a manifest's texts are the same few hundred, ten times over
def _parsed(text: str) -> tuple[Code, tuple[str, ...]]:
    code = _Parser(text).code
    return code, tuple(dict.fromkeys(operand for opcode, operand in code if opcode == "load"))


_LONGEST = 2000  # characters


class _Parser:
    def __init__(self, text: str):
        self.text = text
        if len(text) > _LONGEST:
            self.text = text[:40] + "..."
            self._fail(f"it has more than {_LONGEST} characters")
        self.tokens = self._tokenize()
        self.position = 0
        self.code: Code = []
        try:
            self._expression()
        except RecursionError:
            self._fail("it is nested too deeply")
        if self.position < len(self.tokens):
            self._fail(f"unexpected '{self.tokens[self.position]}'")

    def _fail(self, reason: str) -> NoReturn:
        raise ExpressionError(f"'{self.text}' is not an expression: {reason}")

    def _tokenize(self) -> list[str]:
        tokens, position = [], 0
        while self.text[position:].strip():
            match = _TOKEN.match(self.text, position)
            if not match:
                self._fail(f"cannot read '{self.text[position:].strip()}'")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _take(self, *wanted: str) -> bool:
        if self._peek() in wanted:
            self.position += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(f"expected '{token}', got '{self._peek() or 'the end'}'")

    def _put(self, opcode: str, operand: int | str = 0) -> None:
        self.code.append((opcode, operand))

    def _jump(self, opcode: str) -> int:
        self._put(opcode)
        return len(self.code) - 1

    def _land(self, jump: int) -> None:
        self.code[jump] = (self.code[jump][0], len(self.code))

    def _expression(self) -> None:
        # `value if condition else other`: the condition runs first, so the value's code is moved behind it.
        start = len(self.code)
        self._alternative()
        if not self._take("if"):
            return
        value = self.code[start:]
        del self.code[start:]
        self._alternative()
        otherwise = self._jump("jump_if_zero")
        moved = len(self.code) - start
        jumps = ("jump", "jump_if_zero")
        self.code += [(opcode, at + moved) if opcode in jumps else (opcode, at) for opcode, at in value]
        end = self._jump("jump")
        self._land(otherwise)
        self._expect("else")
        self._expression()
        self._land(end)

    def _logic(self, word: str, operand: Callable[[], None]) -> None:
        """`a and b` is `b != 0 if a else 0`; `a or b` is `1 if a else b != 0`."""
        operand()
        while self._take(word):
            if word == "or":
                self._put("not")
            shortcut = self._jump("jump_if_zero")
            operand()
            self._put("truth")
            end = self._jump("jump")
            self._land(shortcut)
            self._put("constant", int(word == "or"))
            self._land(end)

    def _alternative(self) -> None:
        self._logic("or", self._conjunction)

    def _conjunction(self) -> None:
        self._logic("and", self._negation)

    def _negation(self) -> None:
        if self._take("not"):
            self._negation()
            self._put("not")
        else:
            self._comparison()

    def _comparison(self) -> None:
        self._sum()
        operator = self._peek()
        if self._take("==", "!=", "<", "<=", ">", ">="):
            self._sum()
            self._put(_BINARY[operator])

    def _left_associative(self, operators: tuple[str, ...], operand: Callable[[], None]) -> None:
        operand()
        while (operator := self._peek()) in operators:
            self._take(operator)
            operand()
            self._put(_BINARY[operator])

    def _sum(self) -> None:
        self._left_associative(("+", "-"), self._product)

    def _product(self) -> None:
        self._left_associative(("*", "//", "%"), self._unary)

    def _unary(self) -> None:
        if self._take("-"):
            self._unary()
            self._put("negate")
        else:
            self._atom()

    def _atom(self) -> None:
        token = self._peek()
        if self._take("("):
            self._expression()
            self._expect(")")
        elif token.isdigit():
            self.position += 1
            if int(token) > LARGEST:
                self._fail(f"{token} does not fit 64 bits")
            self._put("constant", int(token))
        elif token in _FUNCTIONS and self.tokens[self.position + 1 : self.position + 2] == ["("]:
            self.position += 2
            self._expression()
            self._expect(",")
            self._expression()
            self._put(_FUNCTIONS[token])
            while token in ("min", "max") and self._take(","):
                self._expression()
                self._put(_FUNCTIONS[token])
            self._expect(")")
        elif token and (token[0].isalpha() or token[0] == "_") and token not in _KEYWORDS:
            self.position += 1
            self._put("load", token)
        else:
            self._fail(f"expected a value, got '{token or 'the end'}'")
